// Errors. A user's mistake throws tally::Error; a broken promise inside tally throws InternalError.
// Messages name the location, the value found and the expected one:
//   [matmul] inner sizes differ: got [8, 64] and [32, 8]; transpose one of them?
#pragma once

#include <array>
#include <cstdint>
#include <span>
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

// The text of a message. Each "{}" is replaced by the next part; "{{" and "}}" are braces. The program does not compile
// if the numbers of "{}" and parts differ.
template <class... Parts>
class MessageText {
 public:
  consteval MessageText(const char* text) : text_(text) {
    std::size_t places = 0;
    for (const char* at = text; *at != '\0'; ++at) {
      if (*at != '{' && *at != '}') continue;
      if (at[0] == '{' && at[1] == '}') ++places;
      if (at[0] != at[1] && !(at[0] == '{' && at[1] == '}')) throw "a brace of a message is written {{ or }}";
      ++at;
    }
    if (places != sizeof...(Parts)) throw "a message needs one part for each {}";
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};
template <class... Parts>
using Message = MessageText<std::type_identity_t<Parts>...>;

namespace detail {
std::string filled(std::string_view text, std::span<const std::string> parts);
}  // namespace detail

// formatted("got {} of {}", 3, shape) -> one string.
template <class... Parts>
std::string formatted(Message<Parts...> message, const Parts&... parts) {
  const std::array<std::string, sizeof...(Parts)> texts{detail::part_text(parts)...};
  return detail::filled(message.text(), texts);
}

// Throws Error("[where] message").
template <class... Parts>
[[noreturn]] void fail(std::string_view where, Message<Parts...> message, const Parts&... parts) {
  detail::throw_error(where, formatted(message, parts...));
}

// Throws Error("[where] message") unless ok. The text is only made when it is needed.
template <class... Parts>
void check(bool ok, std::string_view where, Message<Parts...> message, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(where, message, parts...);
}

// The same for an error that no user can cause: throws InternalError.
template <class... Parts>
void check_internal(bool ok, std::string_view where, Message<Parts...> message, const Parts&... parts) {
  if (!ok) [[unlikely]]
    detail::throw_internal(where, formatted(message, parts...));
}

}  // namespace tally
