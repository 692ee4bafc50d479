// JSON text (RFC 8259) as a stream of tokens, strictly and without recursion.
//
// Refused beyond what the grammar refuses: bytes that are not UTF-8, a byte order mark, lone surrogates, a name twice
// in one object, nesting deeper than a limit, too many names in one object, integers that do not fit 64 bits, reals
// that do not fit a double, and, on demand, every number that is not written as an integer. Memory stays near the size
// of the text: strings without escapes are views of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace tally {

struct JsonLimits {
  std::size_t max_depth = 64;         // arrays and objects within each other; [] has depth 1
  std::size_t max_members = 1000000;  // names in one object
  bool integers_only = false;         // 1.0 and 1e3 are refused
};

enum class JsonTokenKind {
  begin_object,
  end_object,
  begin_array,
  end_array,
  name,
  null,
  boolean,
  integer,
  real,
  string,
  end,  // nothing but white space is left
};

struct JsonToken {
  JsonTokenKind kind = JsonTokenKind::end;
  std::uint64_t offset = 0;  // of its first byte
  std::string_view text;     // decoded; that of a name lives as long as the scanner, that of a string until next()
  std::int64_t integer = 0;  // 0 or 1 of a boolean
  double real = 0;
};

class JsonScanner {
 public:
  // `source` names the text in errors: "[json] source: byte 17: ...". Offsets count from `first_offset`, for text that
  // is part of a file. The text must outlive the scanner. Throws Error when it is not UTF-8 or begins with a mark.
  JsonScanner(std::string_view text, const JsonLimits& limits, std::string_view source, std::uint64_t first_offset = 0);

  // The next token. Throws Error at the first byte that is not as it should be.
  JsonToken next();

  // The name of the text, safe to print.
  const std::string& source() const { return source_; }

 private:
  struct Name {
    std::string_view text;
    std::uint64_t offset;
  };
  struct Frame {
    bool is_object;
    bool empty;
    std::size_t first_name;  // names_ from here on belong to this object
  };

  template <class... Parts>
  [[noreturn]] void fail_at(std::uint64_t offset, const Parts&... parts) const {
    fail("json", source_, ": byte ", offset, ": ", parts...);
  }
  bool at(char wanted) const { return position_ < text_.size() && text_[position_] == wanted; }
  std::uint64_t offset() const { return first_offset_ + position_; }
  std::string found() const;
  void skip_space();
  void expect(char wanted, std::string_view when);
  JsonToken token(JsonTokenKind kind) const;
  JsonToken value();
  JsonToken open(bool is_object);
  JsonToken close();
  JsonToken name();
  JsonToken literal(std::string_view word, JsonTokenKind kind, std::int64_t value);
  JsonToken number();
  JsonToken string(JsonTokenKind kind, std::string& decoded);
  void skip_plain();
  void escape(std::string& decoded);
  char32_t hex4();
  void check_names(std::size_t first);

  std::string_view text_;
  JsonLimits limits_;
  std::string source_;
  std::uint64_t first_offset_;
  std::size_t position_ = 0;
  bool started_ = false;
  bool after_name_ = false;
  std::vector<Frame> frames_;
  std::vector<Name> names_;
  std::deque<std::string> decoded_names_;  // those that had escapes
  std::string decoded_string_;
};

}  // namespace tally
