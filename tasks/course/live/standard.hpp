// The parts of the C++20 library that Debian 12's libc++ for WebAssembly lacks. Included before every file.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

namespace std {

template <class To, class From>
requires(sizeof(To) == sizeof(From) && is_trivially_copyable_v<To> && is_trivially_copyable_v<From>) constexpr To
    bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

namespace ranges {

template <class Range, class Target>
void copy(Range&& range, Target target) {
  std::copy(std::begin(range), std::end(range), target);
}
// The rest with a projection: a function or a member that is applied to each element first.
template <class Range, class Predicate, class Projection = identity>
auto find_if(Range&& range, Predicate predicate, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](const auto& x) { return invoke(predicate, invoke(projection, x)); });
}
template <class Range, class Value, class Projection = identity>
auto find(Range&& range, const Value& value, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](const auto& x) { return invoke(projection, x) == value; });
}
template <class Range, class Value, class Projection = identity>
auto count(Range&& range, const Value& value, Projection projection = {}) {
  return std::count_if(std::begin(range), std::end(range),
                       [&](const auto& x) { return invoke(projection, x) == value; });
}
template <class Range, class Predicate, class Projection = identity>
bool any_of(Range&& range, Predicate predicate, Projection projection = {}) {
  return ranges::find_if(range, predicate, projection) != std::end(range);
}
template <class Range, class Predicate, class Projection = identity>
bool all_of(Range&& range, Predicate predicate, Projection projection = {}) {
  return std::all_of(std::begin(range), std::end(range),
                     [&](const auto& x) { return invoke(predicate, invoke(projection, x)); });
}
template <class Range, class Predicate, class Projection = identity>
auto count_if(Range&& range, Predicate predicate, Projection projection = {}) {
  return std::count_if(std::begin(range), std::end(range),
                       [&](const auto& x) { return invoke(predicate, invoke(projection, x)); });
}
template <class Range>
auto max_element(Range&& range) {
  return std::max_element(std::begin(range), std::end(range));
}
template <class Range, class Less = std::less<>, class Projection = identity>
void stable_sort(Range&& range, Less before = {}, Projection projection = {}) {
  std::stable_sort(std::begin(range), std::end(range), [&](const auto& a, const auto& b) {
    return invoke(before, invoke(projection, a), invoke(projection, b));
  });
}

}  // namespace ranges

// The shortest text that reads back as the same number.
inline to_chars_result to_chars(char* begin, char* end, double value, chars_format format) {
  for (int digits = 1; digits <= 17; ++digits) {
    const char* const pattern = format == chars_format::scientific ? "%.*e" : "%.*g";
    const int length = snprintf(begin, static_cast<size_t>(end - begin), pattern, digits, value);
    if (strtod(begin, nullptr) == value) return {begin + length, errc()};
  }
  return {begin + strlen(begin), errc()};
}
inline to_chars_result to_chars(char* begin, char* end, double value) {
  return to_chars(begin, end, value, chars_format::general);
}

// Reads a number with a copy that ends in a zero, as strtod needs it.
inline from_chars_result from_chars(const char* begin, const char* end, double& value) {
  const string text(begin, end);
  char* last = nullptr;
  const double found = strtod(text.c_str(), &last);
  if (last == text.c_str()) return {begin, errc::invalid_argument};
  value = found;
  return {begin + (last - text.c_str()), errc()};
}

}  // namespace std
