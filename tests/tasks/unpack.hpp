// A second, independent reader of the format in tasks/inspect/packing.hpp.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tally::testing {

// The bytes in packed order: rows from the diagonal to the left.
inline std::vector<int> unpacked_bytes(std::string_view text, std::int64_t length) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<bool> bits;
  for (const char c : text) {
    if (c == '=') break;
    const std::size_t digit = digits.find(c);
    EXPECT_NE(digit, std::string_view::npos) << c;
    for (int bit = 5; bit >= 0; --bit) bits.push_back((digit >> bit & 1) != 0);
  }
  std::size_t at = 0;
  const auto take = [&] { return at < bits.size() && bits[at++] ? 1 : 0; };
  int lengths[256];
  for (int& one : lengths) {
    one = 0;
    for (int bit = 0; bit < 4; ++bit) one = 2 * one + take();
  }
  std::map<std::pair<int, int>, int> symbols;  // by length and code
  int code = 0;
  for (int bits_of_code = 1; bits_of_code <= 15; ++bits_of_code, code *= 2) {
    for (int n = 0; n < 256; ++n) {
      if (lengths[n] == bits_of_code) symbols[{bits_of_code, code++}] = n;
    }
  }
  std::vector<int> bytes;
  while (static_cast<std::int64_t>(bytes.size()) < length * (length + 1) / 2) {
    std::pair<int, int> read{0, 0};
    do {
      read = {read.first + 1, 2 * read.second + take()};
    } while (!symbols.contains(read) && read.first < 16);
    if (read.first == 16) {
      ADD_FAILURE() << "no such code";
      break;
    }
    bytes.push_back(symbols.at(read));
  }
  EXPECT_LT(bits.size() - at, 16u) << "there is more than the square";
  return bytes;
}

// The matrix [T, T], with its sums (gates) or leftovers (breaks) from the diagonal to the left.
struct Unpacked {
  std::vector<double> values, sums;
};
inline Unpacked unpack(std::string_view text, std::int64_t length, std::string_view packing, double gate_levels = 255) {
  const std::size_t colon = text.find(':');
  const double most = colon == std::string_view::npos ? 0 : std::stod(std::string(text.substr(0, colon)));
  if (colon != std::string_view::npos) text.remove_prefix(colon + 1);
  const std::vector<int> bytes = unpacked_bytes(text, length);
  Unpacked result;
  result.values.resize(static_cast<std::size_t>(length * length));
  result.sums = result.values;
  if (static_cast<std::int64_t>(bytes.size()) != length * (length + 1) / 2) return result;
  std::size_t next = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    double sum = packing == "breaks" ? 1 : 0;
    for (std::int64_t j = i; j >= 0; --j) {
      const auto element = static_cast<std::size_t>(i * length + j);
      const double n = bytes[next++], c = (n - 128) / 127;
      const double value = most > 0 ? most * c * std::abs(c) : packing == "gates" ? n / gate_levels : n * n / 65025;
      sum = packing == "breaks" ? sum * (1 - value) : sum + value;
      result.values[element] = value;
      result.sums[element] = sum;
    }
  }
  return result;
}

}  // namespace tally::testing
