// Attention as text for a page. The lower triangle, with the diagonal, of a matrix [T, T] of numbers from 0 to 1 is
// stored with one byte per number: row 0, row 1, ..., each row from the diagonal to the left. The text of a matrix is
// base64(zlib(bytes)); tasks/pages/packed.js reads it.
//
// The value of a byte n depends on how the page sums or multiplies the numbers from the diagonal to the left:
//   share   v = (n/255)², within sqrt(v)/255: precise for small numbers, the usual case in a row with the sum 1.
//   gates   g = n/L with L = gate_levels(T), rounded so that the SUMS of the n/L are right within 1/(2L): the sums
//           are contextual positions. A single gate is right within 1/L.
//   breaks  b = (n/255)², rounded up or down so that the PRODUCTS of the 1-b follow the exact ones within 1/100: the
//           products are the leftover of a stick. A single break is right within 3 sqrt(b)/255
// If a share is negative or above 1, which some rules allow, the text begins with "m:", where m is the largest |v|:
//           v = m c |c| with c = (n-128)/127, within sqrt(m |v|)/127
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tally {

enum class Packing { share, gates, breaks };
std::string_view name_of(Packing packing);

// 255, or 100 for more than 256 tokens, to limit the size of the page.
int gate_levels(std::int64_t length);

// square: T² numbers row by row. Gates and breaks are clamped to 0..1.
std::string pack_square(std::span<const double> square, std::int64_t length, Packing packing);

}  // namespace tally
