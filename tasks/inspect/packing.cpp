#include "tasks/inspect/packing.hpp"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/io/base64.hpp"

namespace tally {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr double largest_byte = 255;

std::uint8_t rounded(double x, double most = largest_byte) {
  return static_cast<std::uint8_t>(std::clamp(std::round(x), 0.0, most));
}
std::uint8_t rounded_root(double share) { return rounded(largest_byte * std::sqrt(std::clamp(share, 0.0, 1.0))); }
double square_of(std::uint8_t n) { return (n / largest_byte) * (n / largest_byte); }

// One row, from the diagonal to the left. largest: 0 for shares from 0 to 1.
void append_shares(std::span<const double> row, double largest, Bytes& bytes) {
  for (std::size_t j = row.size(); j-- > 0;) {
    const double root = largest > 0 ? std::copysign(std::sqrt(std::abs(row[j]) / largest), row[j]) : 0;
    bytes.push_back(largest > 0 ? rounded(128 + 127 * root) : rounded_root(row[j]));
  }
}

void append_gates(std::span<const double> row, double levels, Bytes& bytes) {
  double sum = 0, kept = 0;  // of the gates, and of their bytes
  for (std::size_t j = row.size(); j-- > 0;) {
    sum += std::clamp(row[j], 0.0, 1.0);
    bytes.push_back(rounded(levels * sum - kept, levels));
    kept += bytes.back();
  }
}

void append_breaks(std::span<const double> row, Bytes& bytes) {
  double left = 1, kept = 1;  // of the stick, exactly and from the bytes
  for (std::size_t j = row.size(); j-- > 0;) {
    const int nearest = rounded_root(row[j]);
    left *= 1 - std::clamp(row[j], 0.0, 1.0);
    const int mending = kept > 0 ? rounded_root(1 - left / kept) : nearest;
    bytes.push_back(
        static_cast<std::uint8_t>(std::clamp(mending, std::max(nearest - 1, 0), std::min(nearest + 1, 255))));
    kept *= 1 - square_of(bytes.back());
  }
}

std::string compressed(const Bytes& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string result(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(result.data()), &size, bytes.data(),
                               static_cast<uLong>(bytes.size()), Z_BEST_COMPRESSION);
  check(status == Z_OK, "inspect", "zlib cannot compress {} bytes: error {}", bytes.size(), status);
  result.resize(size);
  return result;
}

}  // namespace

int gate_levels(std::int64_t length) { return length > 256 ? 100 : 255; }

std::string_view name_of(Packing packing) {
  return packing == Packing::share ? "share" : packing == Packing::gates ? "gates" : "breaks";
}

std::string pack_square(std::span<const double> square, std::int64_t length, Packing packing) {
  const auto size = static_cast<std::size_t>(length);
  double largest = 0;
  if (packing == Packing::share && std::ranges::any_of(square, [](double v) { return v < -1e-5 || v > 1 + 1e-5; })) {
    for (const double v : square) largest = std::max(largest, std::abs(v));
  }
  Bytes numbers;
  numbers.reserve(size * (size + 1) / 2);
  for (std::size_t i = 0; i < size; ++i) {
    const std::span<const double> row = square.subspan(i * size, i + 1);
    if (packing == Packing::share) append_shares(row, largest, numbers);
    if (packing == Packing::gates) append_gates(row, gate_levels(length), numbers);
    if (packing == Packing::breaks) append_breaks(row, numbers);
  }
  return (largest > 0 ? formatted("{}:", largest) : std::string()) + to_base64(compressed(numbers));
}

}  // namespace tally
