// Attention as text for a page. Of a square [T, T] of numbers from 0 to 1 what lies on and below the diagonal is kept,
// one byte a number, and the bytes by their frequencies (a canonical Huffman code for each square):
//
//   text = base64( 128 bytes: the lengths of the 256 codes, 4 bits each, the first in the high half;
//                  then the codes of row 0, row 1, ..., each row from the diagonal to the left, high bits first )
//
// A code has up to 15 bits; shorter codes come first, of equal length the smaller byte. tasks/pages/packed.js reads it.
//
// What a byte n stands for depends on what the numbers add up to on their way from the diagonal to the left:
//   share   v = (n/255)², within sqrt(v)/255: fine where numbers are small, as most of a row that adds up to 1 are
//   gates   g = n/L, rounded so that the SUMS of the n/L are right within 1/(2L): they are contextual positions.
//           A single gate is right within 1/L. L = gate_levels(T)
//   breaks  b = (n/255)², rounded up or down so that the PRODUCTS of the 1-b follow those of the true ones: they are
//           what is left of a stick, right within 1/100. A single break is right within 3 sqrt(b)/255
// Shares of which one is negative or above 1, as some rules have them, begin with "m:", m the largest of |v|:
//           v = m c |c| with c = (n-128)/127, within sqrt(m |v|)/127
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tally {

enum class Packing { share, gates, breaks };
std::string_view name_of(Packing packing);

// 255; 100 for more than 256 tokens, whose pages would grow beyond what is comfortable.
int gate_levels(std::int64_t length);

// square: T² numbers row by row. Of gates and breaks what is outside of 0..1 is taken to its end.
std::string pack_square(std::span<const double> square, std::int64_t length, Packing packing);

}  // namespace tally
