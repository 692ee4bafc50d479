#include "core/io/json_scanner.hpp"

#include <algorithm>
#include <charconv>

#include "core/io/utf8.hpp"

namespace tally {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonScanner::JsonScanner(std::string_view text, const JsonLimits& limits, std::string_view source,
                         std::uint64_t first_offset)
    : text_(text), limits_(limits), source_(escape_for_print(source, 1000)), first_offset_(first_offset) {
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) fail_at(first_offset + invalid, "not UTF-8");
  if (text.starts_with("\xef\xbb\xbf")) fail_at(first_offset, "a byte order mark is not allowed in JSON");
}

JsonToken JsonScanner::next() {
  skip_space();
  if (frames_.empty()) {
    if (!started_) {
      started_ = true;
      return value();
    }
    if (position_ < text_.size()) fail_at(offset(), "expected nothing behind the value, found ", found());
    return token(JsonTokenKind::end);
  }
  if (after_name_) {
    after_name_ = false;
    expect(':', "after a name");
    skip_space();
    return value();
  }
  Frame& frame = frames_.back();
  if (at(frame.is_object ? '}' : ']')) return close();
  if (!frame.empty) {
    expect(',', frame.is_object ? "or '}' after a value" : "or ']' after a value");
    skip_space();
  }
  frame.empty = false;
  return frame.is_object ? name() : value();
}

std::string JsonScanner::found() const {
  if (position_ == text_.size()) return "the end of the text";
  std::size_t bytes = 1;
  while (position_ + bytes < text_.size() && (text_[position_ + bytes] & 0xc0) == 0x80) ++bytes;
  return concat("'", escape_for_print(text_.substr(position_, bytes)), "'");
}

void JsonScanner::skip_space() {
  while (at(' ') || at('\n') || at('\r') || at('\t')) ++position_;
}

void JsonScanner::expect(char wanted, std::string_view when) {
  if (!at(wanted)) fail_at(offset(), "expected '", wanted, "' ", when, ", found ", found());
  ++position_;
}

JsonToken JsonScanner::token(JsonTokenKind kind) const {
  JsonToken result;
  result.kind = kind;
  result.offset = offset();
  return result;
}

JsonToken JsonScanner::value() {
  if (position_ == text_.size()) fail_at(offset(), "expected a value, found the end of the text");
  switch (text_[position_]) {
    case '{': return open(true);
    case '[': return open(false);
    case '"': return string(JsonTokenKind::string, decoded_string_);
    case 'n': return literal("null", JsonTokenKind::null, 0);
    case 't': return literal("true", JsonTokenKind::boolean, 1);
    case 'f': return literal("false", JsonTokenKind::boolean, 0);
    default: return number();
  }
}

JsonToken JsonScanner::open(bool is_object) {
  if (frames_.size() == limits_.max_depth) fail_at(offset(), "nested deeper than ", limits_.max_depth);
  const JsonToken result = token(is_object ? JsonTokenKind::begin_object : JsonTokenKind::begin_array);
  frames_.push_back({is_object, true, names_.size()});
  ++position_;
  return result;
}

JsonToken JsonScanner::close() {
  const Frame frame = frames_.back();
  const JsonToken result = token(frame.is_object ? JsonTokenKind::end_object : JsonTokenKind::end_array);
  if (frame.is_object) check_names(frame.first_name);
  frames_.pop_back();
  ++position_;
  return result;
}

JsonToken JsonScanner::name() {
  if (!at('"')) fail_at(offset(), "expected a name in quotes, found ", found());
  if (names_.size() - frames_.back().first_name == limits_.max_members) {
    fail_at(offset(), "more than ", limits_.max_members, " names in one object");
  }
  std::string decoded;
  JsonToken result = string(JsonTokenKind::name, decoded);
  if (!decoded.empty()) result.text = decoded_names_.emplace_back(std::move(decoded));
  names_.push_back({result.text, result.offset});
  after_name_ = true;
  return result;
}

// Names of the object that ends here. Sorted rather than hashed: no choice of names makes it slow.
void JsonScanner::check_names(std::size_t first) {
  const auto begin = names_.begin() + static_cast<std::ptrdiff_t>(first);
  std::sort(begin, names_.end(), [](const Name& a, const Name& b) {
    const int order = a.text.compare(b.text);
    return order != 0 ? order < 0 : a.offset < b.offset;
  });
  const auto twin =
      std::adjacent_find(begin, names_.end(), [](const Name& a, const Name& b) { return a.text == b.text; });
  if (twin != names_.end()) {
    fail_at(twin[1].offset, "the name '", escape_for_print(twin->text), "' stands here again; first at byte ",
            twin->offset);
  }
  names_.resize(first);
}

JsonToken JsonScanner::literal(std::string_view word, JsonTokenKind kind, std::int64_t value) {
  if (text_.substr(position_, word.size()) != word) fail_at(offset(), "expected a value, found ", found());
  JsonToken result = token(kind);
  result.integer = value;
  position_ += word.size();
  return result;
}

// -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
JsonToken JsonScanner::number() {
  JsonToken result = token(JsonTokenKind::integer);
  const std::size_t first = position_;
  const auto digits = [&](std::string_view what) {
    if (position_ == text_.size() || !is_digit(text_[position_])) {
      fail_at(offset(), "expected ", what, ", found ", found());
    }
    while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
  };
  if (at('-')) ++position_;
  if (at('0')) {
    ++position_;
  } else {
    digits(position_ == first ? "a value" : "a digit");
  }
  if (at('.')) {
    result.kind = JsonTokenKind::real;
    ++position_;
    digits("a digit");
  }
  if (at('e') || at('E')) {
    result.kind = JsonTokenKind::real;
    ++position_;
    if (at('+') || at('-')) ++position_;
    digits("a digit");
  }
  const std::string_view written = text_.substr(first, position_ - first);
  const char* end = written.data() + written.size();
  if (result.kind == JsonTokenKind::integer) {
    const auto [stop, error] = std::from_chars(written.data(), end, result.integer);
    if (error != std::errc{}) {
      fail_at(result.offset, "the integer ", escape_for_print(written, 40), " does not fit 64 bits");
    }
  } else if (limits_.integers_only) {
    fail_at(result.offset, "only integers are allowed here, found ", escape_for_print(written, 40));
  } else {
    const auto [stop, error] = std::from_chars(written.data(), end, result.real);
    if (error != std::errc{}) {
      fail_at(result.offset, "the number ", escape_for_print(written, 40), " does not fit a double");
    }
  }
  return result;
}

// The text is a view of ours, or of `decoded` when there are escapes; without them `decoded` is left empty.
JsonToken JsonScanner::string(JsonTokenKind kind, std::string& decoded) {
  JsonToken result = token(kind);
  decoded.clear();
  std::size_t first = ++position_;  // of the characters not yet copied
  for (skip_plain(); text_[position_] != '"'; skip_plain()) {
    decoded.append(text_, first, position_ - first);
    escape(decoded);
    first = position_;
  }
  result.text = text_.substr(first, position_ - first);
  if (!decoded.empty()) result.text = decoded.append(result.text);
  ++position_;
  return result;
}

// To the next quote or backslash of a string.
void JsonScanner::skip_plain() {
  const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(position_);
  const auto stop = std::find_if(begin, text_.end(),
                                 [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; });
  position_ += static_cast<std::size_t>(stop - begin);
  if (position_ == text_.size()) fail_at(offset(), "the text ends within a string");
  if (*stop != '"' && *stop != '\\') fail_at(offset(), "a control character must be escaped in a string");
}

void JsonScanner::escape(std::string& decoded) {
  const std::uint64_t begin = offset();
  ++position_;
  if (position_ == text_.size()) fail_at(begin, "the text ends within a string");
  constexpr std::string_view letters = "\"\\/bfnrt";
  constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
  const std::size_t letter = letters.find(text_[position_]);
  if (letter != std::string_view::npos) {
    decoded += meanings[letter];
    ++position_;
    return;
  }
  if (!at('u')) fail_at(begin, "unknown escape: \\ before ", found());
  char32_t code = hex4();
  if (code >= 0xdc00 && code <= 0xdfff) fail_at(begin, "a lone surrogate");
  if (code >= 0xd800 && code <= 0xdbff) {
    if (text_.substr(position_, 2) != "\\u") fail_at(begin, "a lone surrogate");
    ++position_;
    const char32_t low = hex4();
    if (low < 0xdc00 || low > 0xdfff) fail_at(begin, "a lone surrogate");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(decoded, code);
}

// The number after a 'u', which is where the position is.
char32_t JsonScanner::hex4() {
  const std::string_view digits = text_.substr(std::min(position_ + 1, text_.size()), 4);
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || stop != digits.data() + 4) {
    fail_at(offset(), "expected four hexadecimal digits after \\u");
  }
  position_ += 5;
  return value;
}

}  // namespace tally
