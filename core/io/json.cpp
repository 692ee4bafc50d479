#include "core/io/json.hpp"

#include <algorithm>
#include <cmath>

#include "core/utf8.hpp"

namespace tally {
namespace {

// Writes values in order; `member` is the last name, for errors.
class Writer {
 public:
  explicit Writer(int indent) : indent_(static_cast<std::size_t>(indent)) {}

  void write(const JsonValue& value, std::size_t depth = 0) {
    if (value.is_object()) {
      const auto& members = value.members();
      list('{', '}', members, !members.empty(), depth, [&](const JsonMember& member) {
        member_ = member.name;
        write_string(member.name);
        text_ += indent_ > 0 ? ": " : ":";
        write(member.value, depth + 1);
      });
    } else if (value.is_array()) {
      const auto& elements = value.elements();
      const bool lines = std::any_of(elements.begin(), elements.end(), [](const JsonValue& element) {
        return element.is_array() || element.is_object();
      });
      list('[', ']', elements, lines, depth, [&](const JsonValue& element) { write(element, depth + 1); });
    } else if (value.is_string()) {
      write_string(value.string());
    } else if (value.is_real()) {
      write_real(value.real());
    } else {
      text_ += value.is_null()      ? "null"
               : value.is_integer() ? to_text(value.integer())
               : value.boolean()    ? "true"
                                    : "false";
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void write_real(double real) {
    if (!std::isfinite(real)) {
      text_ += "null";
      return;
    }
    const std::string digits = to_text(real);
    text_ += digits;
    if (digits.find_first_of(".e") == std::string::npos) text_ += ".0";
  }

  template <class List, class WriteOne>
  void list(char open, char close, const List& items, bool lines, std::size_t depth, const WriteOne& write_one) {
    const auto new_line = [&](std::size_t level) {
      if (lines && indent_ > 0) text_.append(1, '\n').append(level * indent_, ' ');
    };
    text_ += open;
    for (const auto& item : items) {
      if (&item != &items.front()) text_ += lines || indent_ == 0 ? "," : ", ";
      new_line(depth + 1);
      write_one(item);
    }
    new_line(depth);
    text_ += close;
  }

  void write_string(std::string_view text) {
    check(find_invalid_utf8(text) == std::string_view::npos, "json", "the text '{}' in '{}' is not UTF-8",
          escape_for_print(text), escape_for_print(member_));
    text_ += '"';
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20) {
        text_.append("\\u00").append(1, c < 0x10 ? '0' : '1').append(1, "0123456789abcdef"[c & 15]);
      } else {
        if (c == '"' || c == '\\') text_ += '\\';
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::size_t indent_;
  std::string text_;
  std::string_view member_;
};

}  // namespace

JsonValue::JsonValue() = default;
JsonValue::JsonValue(const JsonValue& other) = default;
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue& other) = default;
JsonValue& JsonValue::operator=(JsonValue&& other) noexcept = default;
JsonValue::~JsonValue() = default;
JsonValue::JsonValue(double value) : value_(value) {}
JsonValue::JsonValue(std::string text) : value_(std::move(text)) {}
JsonValue::JsonValue(std::string_view text) : value_(std::string(text)) {}
JsonValue::JsonValue(const char* text) : value_(std::string(text)) {}
JsonValue::JsonValue(Array elements) : value_(std::move(elements)) {}
JsonValue::JsonValue(Object members) : value_(std::move(members)) {}
JsonValue JsonValue::array() { return Array{}; }
JsonValue JsonValue::object() { return Object{}; }
JsonValue JsonValue::object(std::initializer_list<JsonMember> members) { return Object(members); }

std::string_view JsonValue::kind() const {
  constexpr std::string_view kinds[] = {"null",     "a boolean", "an integer", "a real number",
                                        "a string", "an array",  "an object"};
  return kinds[value_.index()];
}

template <class T>
const T& JsonValue::get(std::string_view wanted, Key key) const {
  const JsonValue& value = key ? at(*key) : *this;
  if (const T* held = std::get_if<T>(&value.value_)) return *held;
  if (!key) fail("json", "expected {}, found {}", wanted, kind());
  fail("json", "'{}' must be {}, but is {}", escape_for_print(*key), wanted, value.kind());
}

template const bool& JsonValue::get<bool>(std::string_view, Key) const;
template const std::int64_t& JsonValue::get<std::int64_t>(std::string_view, Key) const;
template const std::string& JsonValue::get<std::string>(std::string_view, Key) const;
template const JsonValue::Array& JsonValue::get<JsonValue::Array>(std::string_view, Key) const;
template const JsonValue::Object& JsonValue::get<JsonValue::Object>(std::string_view, Key) const;

double JsonValue::real(Key key) const {
  const JsonValue& value = key ? at(*key) : *this;
  return value.is_integer() ? static_cast<double>(value.integer()) : get<double>("a number", key);
}

std::vector<std::int64_t> JsonValue::integers() const {
  std::vector<std::int64_t> numbers;
  numbers.reserve(elements().size());
  for (const JsonValue& element : elements()) numbers.push_back(element.integer());
  return numbers;
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members()) {
    if (member.name == key) return &member.value;
  }
  return nullptr;
}

const JsonValue& JsonValue::at(std::string_view key) const {
  if (const JsonValue* found = find(key)) return *found;
  fail("json", "'{}' is missing", escape_for_print(key));
}

JsonValue& JsonValue::set(std::string_view key, JsonValue value) {
  check(is_object(), "json", "cannot set '{}' in {}", escape_for_print(key), kind());
  if (const JsonValue* found = find(key)) {
    *const_cast<JsonValue*>(found) = std::move(value);  // ours
  } else {
    std::get<Object>(value_).push_back({std::string(key), std::move(value)});
  }
  return *this;
}

bool JsonValue::remove(std::string_view key) {
  check(is_object(), "json", "cannot remove '{}' from {}", escape_for_print(key), kind());
  return std::erase_if(std::get<Object>(value_), [&](const JsonMember& member) { return member.name == key; }) > 0;
}

JsonValue& JsonValue::push(JsonValue value) {
  check(is_array(), "json", "cannot append to {}", kind());
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

bool operator==(const JsonValue& a, const JsonValue& b) { return a.value_ == b.value_; }

std::string write_json(const JsonValue& value, int indent) {
  Writer writer(indent);
  writer.write(value);
  return writer.take();
}

}  // namespace tally
