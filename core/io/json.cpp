#include "core/io/json.hpp"

#include <algorithm>
#include <cmath>

#include "core/io/reader.hpp"
#include "core/io/utf8.hpp"

namespace tally {
namespace {

template <class T>
const T& get(const std::variant<std::monostate, bool, std::int64_t, double, std::string, JsonValue::Array,
                                JsonValue::Object>& value,
             std::string_view wanted, std::string_view kind) {
  const T* held = std::get_if<T>(&value);
  check(held != nullptr, "json", "expected ", wanted, ", found ", kind);
  return *held;
}

void check_kind(bool ok, std::string_view key, std::string_view wanted, const JsonValue& value) {
  check(ok, "json", "'", escape_for_print(key), "' must be ", wanted, ", but is ", value.kind());
}

// The value whose first token is `token`.
JsonValue build(JsonScanner& scanner, const JsonToken& token) {
  switch (token.kind) {
    case JsonTokenKind::null: return {};
    case JsonTokenKind::boolean: return token.integer != 0;
    case JsonTokenKind::integer: return token.integer;
    case JsonTokenKind::real: return token.real;
    case JsonTokenKind::begin_array: {
      JsonValue::Array elements;
      for (JsonToken next = scanner.next(); next.kind != JsonTokenKind::end_array; next = scanner.next()) {
        elements.push_back(build(scanner, next));
      }
      return elements;
    }
    case JsonTokenKind::begin_object: {
      JsonValue::Object members;
      for (JsonToken next = scanner.next(); next.kind != JsonTokenKind::end_object; next = scanner.next()) {
        members.push_back({std::string(next.text), build(scanner, scanner.next())});
      }
      return members;
    }
    default: return token.text;
  }
}

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void write(const JsonValue& value, int depth) {
    if (value.is_array()) {
      write_array(value.elements(), depth);
    } else if (value.is_object()) {
      write_object(value.members(), depth);
    } else {
      write_scalar(value);
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void write_scalar(const JsonValue& value) {
    if (value.is_null()) {
      text_ += "null";
    } else if (value.is_bool()) {
      text_ += value.boolean() ? "true" : "false";
    } else if (value.is_integer()) {
      text_ += to_text(value.integer());
    } else if (value.is_real()) {
      write_real(value.real());
    } else {
      write_string(value.string());
    }
  }

  void write_real(double value) {
    check(std::isfinite(value), "json", "'", escape_for_print(member_), "' is ", value, ", which JSON cannot hold");
    std::string text = to_text(value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    text_ += text;
  }

  void write_string(std::string_view text) {
    check(find_invalid_utf8(text) == std::string_view::npos, "json", "the text '", escape_for_print(text), "' in '",
          escape_for_print(member_), "' is not UTF-8");
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        text_ += "\\u00";
        text_ += c < 0x10 ? '0' : '1';
        text_ += "0123456789abcdef"[c & 15];
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  void write_array(const JsonValue::Array& elements, int depth) {
    const bool one_line = std::none_of(elements.begin(), elements.end(), [](const JsonValue& element) {
      return element.is_array() || element.is_object();
    });
    text_ += '[';
    bool first = true;
    for (const JsonValue& element : elements) {
      if (!first) text_ += one_line && indent_ > 0 ? ", " : ",";
      if (!one_line) new_line(depth + 1);
      first = false;
      write(element, depth + 1);
    }
    if (!one_line) new_line(depth);
    text_ += ']';
  }

  void write_object(const JsonValue::Object& members, int depth) {
    text_ += '{';
    bool first = true;
    for (const JsonMember& member : members) {
      if (!first) text_ += ',';
      new_line(depth + 1);
      first = false;
      member_ = member.name;
      write_string(member.name);
      text_ += indent_ > 0 ? ": " : ":";
      write(member.value, depth + 1);
    }
    if (!members.empty()) new_line(depth);
    text_ += '}';
  }

  void new_line(int depth) {
    if (indent_ == 0) return;
    text_ += '\n';
    text_.append(static_cast<std::size_t>(depth) * static_cast<std::size_t>(indent_), ' ');
  }

  int indent_;
  std::string text_;
  std::string_view member_;  // the last name written, for errors
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

bool JsonValue::boolean() const { return get<bool>(value_, "a boolean", kind()); }
std::int64_t JsonValue::integer() const { return get<std::int64_t>(value_, "an integer", kind()); }
double JsonValue::real() const {
  return is_integer() ? static_cast<double>(integer()) : get<double>(value_, "a number", kind());
}
const std::string& JsonValue::string() const { return get<std::string>(value_, "a string", kind()); }
const JsonValue::Array& JsonValue::elements() const { return get<Array>(value_, "an array", kind()); }
const JsonValue::Object& JsonValue::members() const { return get<Object>(value_, "an object", kind()); }

const JsonValue* JsonValue::find(std::string_view key) const {
  const Object& list = members();
  const auto found = std::find_if(list.begin(), list.end(), [&](const JsonMember& m) { return m.name == key; });
  return found == list.end() ? nullptr : &found->value;
}

const JsonValue& JsonValue::at(std::string_view key) const {
  const JsonValue* found = find(key);
  check(found != nullptr, "json", "'", escape_for_print(key), "' is missing");
  return *found;
}

bool JsonValue::boolean(std::string_view key) const {
  const JsonValue& value = at(key);
  check_kind(value.is_bool(), key, "a boolean", value);
  return value.boolean();
}

std::int64_t JsonValue::integer(std::string_view key) const {
  const JsonValue& value = at(key);
  check_kind(value.is_integer(), key, "an integer", value);
  return value.integer();
}

double JsonValue::real(std::string_view key) const {
  const JsonValue& value = at(key);
  check_kind(value.is_number(), key, "a number", value);
  return value.real();
}

const std::string& JsonValue::string(std::string_view key) const {
  const JsonValue& value = at(key);
  check_kind(value.is_string(), key, "a string", value);
  return value.string();
}

const JsonValue::Array& JsonValue::elements(std::string_view key) const {
  const JsonValue& value = at(key);
  check_kind(value.is_array(), key, "an array", value);
  return value.elements();
}

const JsonValue::Object& JsonValue::members(std::string_view key) const {
  const JsonValue& value = at(key);
  check_kind(value.is_object(), key, "an object", value);
  return value.members();
}

JsonValue& JsonValue::set(std::string_view key, JsonValue value) {
  check(is_object(), "json", "cannot set '", escape_for_print(key), "' in ", kind());
  Object& list = std::get<Object>(value_);
  const auto found = std::find_if(list.begin(), list.end(), [&](const JsonMember& m) { return m.name == key; });
  if (found == list.end()) {
    list.push_back({std::string(key), std::move(value)});
  } else {
    found->value = std::move(value);
  }
  return *this;
}

bool JsonValue::remove(std::string_view key) {
  check(is_object(), "json", "cannot remove '", escape_for_print(key), "' from ", kind());
  return std::erase_if(std::get<Object>(value_), [&](const JsonMember& member) { return member.name == key; }) > 0;
}

JsonValue& JsonValue::push(JsonValue value) {
  check(is_array(), "json", "cannot append to ", kind());
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

bool operator==(const JsonValue& a, const JsonValue& b) { return a.value_ == b.value_; }

JsonValue parse_json(std::string_view text, const JsonLimits& limits, std::string_view source) {
  JsonScanner scanner(text, limits, source);
  JsonValue value = build(scanner, scanner.next());
  scanner.next();
  return value;
}

JsonValue read_json(const std::string& path, const JsonLimits& limits, std::uint64_t max_bytes) {
  return parse_json(read_whole_file(path, max_bytes), limits, path);
}

std::string write_json(const JsonValue& value, int indent) {
  Writer writer(indent);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace tally
