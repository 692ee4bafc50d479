// A second, independent reader of the format in tasks/inspect/inspect.hpp.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/base64.hpp"

namespace tally::testing {

// The bytes in packed order: rows from the diagonal to the left.
inline std::vector<unsigned char> unpacked_bytes(std::string_view text, std::int64_t length) {
  const std::string packed = from_base64(text).value();
  std::vector<unsigned char> bytes(static_cast<std::size_t>(length * (length + 1) / 2) + 1);  // one more than there are
  uLongf size = bytes.size();
  EXPECT_EQ(uncompress(bytes.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()), Z_OK);
  bytes.resize(size);
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
  const std::vector<unsigned char> bytes = unpacked_bytes(text, length);
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
