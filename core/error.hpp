// Errors. A user's mistake throws tally::Error; a broken promise inside tally throws InternalError.
// Messages name the location, the value found and the expected one:
//   [matmul] inner sizes differ: got [8, 64] and [32, 8]; transpose one of them?
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace tally {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A bug of ours, never a user's mistake. The text says so.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Text of one part of a message. Other types join by an overload found through their namespace.
std::string to_text(double value);  // shortest form that reads back to the same number
std::string to_text(std::int64_t value);
std::string to_text(std::uint64_t value);
inline std::string to_text(std::string_view value) { return std::string(value); }

namespace detail {
template <class Part>
std::string part_text(const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    return std::string(std::string_view(part));
  } else if constexpr (std::is_same_v<Part, bool>) {
    return part ? "true" : "false";
  } else if constexpr (std::is_same_v<Part, char>) {
    return std::string(1, part);
  } else if constexpr (std::is_integral_v<Part> && std::is_signed_v<Part>) {
    return to_text(static_cast<std::int64_t>(part));
  } else if constexpr (std::is_integral_v<Part>) {
    return to_text(static_cast<std::uint64_t>(part));
  } else if constexpr (std::is_floating_point_v<Part>) {
    return to_text(static_cast<double>(part));
  } else {
    return to_text(part);
  }
}
[[noreturn]] void throw_error(std::string_view where, const std::string& what);
[[noreturn]] void throw_internal(std::string_view where, const std::string& what);
}  // namespace detail

// concat("got ", 3, " of ", shape) -> one string.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (text.append(detail::part_text(parts)), ...);
  return text;
}

// Throws Error("[where] parts...").
template <class... Parts>
[[noreturn]] void fail(std::string_view where, const Parts&... parts) {
  detail::throw_error(where, concat(parts...));
}

// Throws Error("[where] parts...") unless ok. The text is only made when it is needed.
template <class... Parts>
void check(bool ok, std::string_view where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(where, parts...);
}

// The same for an error that no user can cause: throws InternalError.
template <class... Parts>
void check_internal(bool ok, std::string_view where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    detail::throw_internal(where, concat(parts...));
}

}  // namespace tally
