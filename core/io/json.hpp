// JSON values: the content of config.json, metrics.jsonl and results.json. Objects keep the order of their members, so
// that a value has one text. nlohmann-json parses the text (only core/io/json_reader.cpp includes it).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.hpp"

namespace tally {

struct JsonMember;

class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;

  // Defined in json.cpp or below: if inlined everywhere, the variant causes false warnings of g++, and clang needs the
  // members' type complete.
  JsonValue();  // null
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(const JsonValue& other);
  JsonValue& operator=(JsonValue&& other) noexcept;
  ~JsonValue();
  template <std::same_as<bool> Bool>
  JsonValue(Bool value);
  // Throws Error when an unsigned value is over 2^63 - 1.
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) JsonValue(Integer value);
  JsonValue(double value);
  JsonValue(std::string text);
  JsonValue(std::string_view text);
  JsonValue(const char* text);
  JsonValue(Array elements);
  // The names must differ from each other.
  JsonValue(Object members);
  static JsonValue array();
  static JsonValue object();
  // JsonValue::object({{"step", 5}, {"loss", 0.25}})
  static JsonValue object(std::initializer_list<JsonMember> members);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_real() const { return std::holds_alternative<double>(value_); }  // written with a point or an exponent
  bool is_number() const { return is_integer() || is_real(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // "null", "a boolean", "an integer", "a real number", "a string", "an array", "an object".
  std::string_view kind() const;

  const JsonValue* find(std::string_view key) const;  // of an object; null when missing
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const JsonValue& at(std::string_view key) const;

  // The value itself, or with a key the member's: config.at("model").integer("width"). Throws Error, naming the key,
  // when it is missing or of another kind; real() takes integers too.
  using Key = std::optional<std::string_view>;
  bool boolean(Key key = {}) const { return get<bool>("a boolean", key); }
  std::int64_t integer(Key key = {}) const { return get<std::int64_t>("an integer", key); }
  double real(Key key = {}) const;
  const std::string& string(Key key = {}) const { return get<std::string>("a string", key); }
  const Array& elements(Key key = {}) const { return get<Array>("an array", key); }
  const Object& members(Key key = {}) const { return get<Object>("an object", key); }
  std::string& string() { return const_cast<std::string&>(get<std::string>("a string")); }
  Object& members() { return const_cast<Object&>(get<Object>("an object")); }
  std::vector<std::int64_t> integers() const;  // the elements of an array of integers

  // Replaces the member in its place, or appends it. Throws unless this is an object.
  JsonValue& set(std::string_view key, JsonValue value);
  // Removes the member; false when there is none.
  bool remove(std::string_view key);
  // Appends an element. Throws unless this is an array.
  JsonValue& push(JsonValue value);

  // Equal values of the same kind, members in the same order.
  friend bool operator==(const JsonValue& a, const JsonValue& b);

 private:
  template <class T>
  const T& get(std::string_view wanted, Key key = {}) const;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

struct JsonMember {
  std::string name;
  JsonValue value;
  friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

template <std::same_as<bool> Bool>
JsonValue::JsonValue(Bool value) : value_(value) {}

template <std::integral Integer>
requires(!std::same_as<Integer, bool>) JsonValue::JsonValue(Integer value) : value_(static_cast<std::int64_t>(value)) {
  check(std::in_range<std::int64_t>(value), "json", "{} does not fit a signed integer of 64 bits", value);
}

struct JsonLimits {
  std::size_t max_depth = 64;           // arrays and objects within each other; [] has depth 1
  std::size_t max_values = 10'000'000;  // in the text, or in one member where members are read one by one
  bool integers_only = false;           // 1.0 and 1e3 are refused
};

// Strict JSON (RFC 8259). Also refused: bytes that are not UTF-8, a byte order mark, lone surrogates, duplicate names
// in one object, input over the limits, integers that do not fit 64 bits, reals that do not fit a double. Throws Error
// naming `source` and the byte: "[json] source: byte 17: ...".
JsonValue parse_json(std::string_view text, const JsonLimits& limits, std::string_view source);
// The same from a file of at most `max_bytes`.
JsonValue read_json(const std::string& path, const JsonLimits& limits = {}, std::uint64_t max_bytes = 16 << 20);
// Parses one object and passes its members to `take` one after the other, which may move from them. No member is kept,
// and `take` must check for duplicate names. Offsets count from `first_offset`, for text that is part of a file; an
// Error of `take` is rethrown with source, byte and name before it.
void parse_json_members(std::string_view text, const JsonLimits& limits, std::string_view source,
                        std::uint64_t first_offset, const std::function<void(JsonMember& member)>& take);

// indent 0: one line without blanks. Otherwise one line for each member and for each element, indented; arrays of plain
// values stay on one line. Doubles are written in the shortest form that reads back to the same bits, always with a
// point or an exponent; NaN and infinity as null. Throws Error naming the member if a text is not UTF-8.
std::string write_json(const JsonValue& value, int indent = 0);

}  // namespace tally
