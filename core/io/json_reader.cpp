// JSON text to values: nlohmann-json's streaming reader does the grammar; this file adds the stricter checks.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/io/json.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

using Take = std::function<void(JsonMember& member)>;

// The text and the position up to which the library has read it; all copies of its iterator share that position.
struct Source {
  std::string_view text;
  std::string name;
  std::uint64_t first_offset;

  std::size_t next = 0;
  std::size_t last = 0;  // directly after the last value, name or bracket
  bool ended = false;

  template <class... Parts>
  [[noreturn]] void fail_at(std::size_t position, Message<Parts...> message, const Parts&... parts) const {
    fail("json", "{}: byte {}: {}", name, first_offset + position, formatted(message, parts...));
  }
  // Fails at the token that follows `end`.
  template <class... Parts>
  [[noreturn]] void fail_behind(std::size_t end, Message<Parts...> message, const Parts&... parts) const {
    fail_at(begin_of_token(end), message, parts...);
  }
  std::size_t begin_of_token(std::size_t end) const {
    return std::min(text.find_first_not_of(" \t\r\n,:", end), text.size());
  }

  bool at_end() { return ended = next == text.size(); }

  // The end of the token before the one that ends here.
  std::size_t token() { return std::exchange(last, next); }
};

struct Iterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Source* source;

  reference operator*() const { return source->text[source->next]; }
  Iterator& operator++() {
    ++source->next;
    return *this;
  }
  Iterator operator++(int) { return ++*this; }
  bool operator==(const Iterator&) const { return source->at_end(); }  // the other is the end
};

// Builds values from the library's events. Each event may throw, which ends the parsing.
class Builder {
 public:
  Builder(Source& source, const JsonLimits& limits, const Take* take) : source_(source), limits_(limits), take_(take) {}

  JsonValue result() { return std::move(result_); }

  bool null() { return add(source_.token(), {}); }
  bool boolean(bool value) { return add(source_.token(), value); }
  bool number_integer(std::int64_t value) { return add(source_.token(), value); }
  bool number_unsigned(std::uint64_t value) {
    const std::size_t before = source_.token();
    if (!std::in_range<std::int64_t>(value)) refuse_integer(before, to_text(value));
    return add(before, static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string& written) {
    const std::size_t before = source_.token();
    // A number that is not zero, but parses as zero.
    const bool vanished = value == 0 && written.find_first_of("123456789") < written.find_first_of("eE");
    if (vanished || limits_.integers_only || is_whole(written)) refuse_real(before, written);
    return add(before, value);
  }
  bool string(std::string& text) { return add(source_.token(), std::move(text)); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // does not occur in text

  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool key(std::string& name) {
    Level& level = levels_[depth_ - 1];
    if (level.members.empty()) level.members.reserve(3);
    level.members.push_back({std::move(name), {}});
    level.names.push_back(source_.token());
    return true;
  }
  bool end_object() {
    Level& level = levels_[--depth_];
    check_names(level);
    level.names.clear();
    return add(source_.token(), std::exchange(level.members, {}));
  }
  bool end_array() { return add(source_.token(), std::exchange(levels_[--depth_].elements, {})); }

  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception& error) {
    constexpr int number_overflow = 406;
    if (error.id == number_overflow) refuse_real(source_.token(), token);
    // "[...] parse error at line 1, column 4: syntax error ... - invalid literal; last read: 'what it saw'"
    std::string_view message = error.what();
    message = message.substr(message.find(": ") + 2);
    source_.fail_at(source_.next - (source_.ended ? 0 : 1), "{}", message.substr(0, message.find("; last read: ")));
  }

 private:
  struct Level {
    bool is_object = false;
    JsonValue::Object members;
    JsonValue::Array elements;
    std::vector<std::size_t> names;  // where the tokens before the names of the members end
  };

  [[noreturn]] void refuse_integer(std::size_t before, std::string_view written) const {
    source_.fail_behind(before, "the integer {} does not fit 64 bits", escape_for_print(written, 40));
  }
  [[noreturn]] void refuse_real(std::size_t before, std::string_view written) const {
    if (is_whole(written)) refuse_integer(before, written);
    const std::string_view why =
        limits_.integers_only ? "is no integer, but only integers are allowed here" : "does not fit a double";
    source_.fail_behind(before, "the number {} {}", escape_for_print(written, 40), why);
  }
  static bool is_whole(std::string_view written) { return written.find_first_not_of("-0123456789") == written.npos; }

  bool open(bool is_object) {
    const std::size_t before = source_.token();
    if (depth_ == limits_.max_depth) source_.fail_behind(before, "nested deeper than {}", limits_.max_depth);
    check_root(before, is_object);
    if (++depth_ > levels_.size()) levels_.emplace_back();
    levels_[depth_ - 1].is_object = is_object;
    return true;
  }

  void check_root(std::size_t before, bool is_object) const {
    if (take_ != nullptr && depth_ == 0 && !is_object) source_.fail_behind(before, "expected an object");
  }

  // Called with a complete value.
  bool add(std::size_t before, JsonValue&& value) {
    if (++values_ > limits_.max_values) source_.fail_behind(before, "more than {} values", limits_.max_values);
    check_root(before, value.is_object());
    if (depth_ == 0) {
      result_ = std::move(value);
    } else if (Level& level = levels_[depth_ - 1]; level.is_object) {
      level.members.back().value = std::move(value);
      if (take_ != nullptr && depth_ == 1) hand_over(level);
    } else {
      level.elements.push_back(std::move(value));
    }
    return true;
  }

  void hand_over(Level& level) {
    try {
      (*take_)(level.members.back());
    } catch (const Error& error) {
      const std::string name = escape_for_print(level.members.back().name);
      source_.fail_behind(level.names.back(), "'{}': {}", name, error.what());
    }
    level.members.clear();
    level.names.clear();
    values_ = 0;
  }

  // Sorted rather than hashed: no choice of names makes it slow.
  void check_names(const Level& level) {
    sorted_.clear();
    for (std::size_t n = 0; n < level.names.size(); ++n) sorted_.emplace_back(level.members[n].name, level.names[n]);
    std::sort(sorted_.begin(), sorted_.end());
    const auto twin = std::adjacent_find(sorted_.begin(), sorted_.end(),
                                         [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twin == sorted_.end()) return;
    source_.fail_behind(twin[1].second, "the name '{}' stands here again; first at byte {}",
                        escape_for_print(twin->first), source_.first_offset + source_.begin_of_token(twin->second));
  }

  Source& source_;
  const JsonLimits& limits_;
  const Take* take_;
  std::vector<Level> levels_;  // those from depth_ on keep their memory
  std::size_t depth_ = 0;
  std::vector<std::pair<std::string_view, std::size_t>> sorted_;
  std::size_t values_ = 0;
  JsonValue result_;
};

JsonValue parse(std::string_view text, const JsonLimits& limits, std::string_view name, std::uint64_t first_offset,
                const Take* take) {
  Source source{text, escape_for_print(name, 1000), first_offset};
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) source.fail_at(invalid, "not UTF-8");
  // The library ignores a mark, and treats a zero byte as the end.
  if (text.starts_with("\xef\xbb\xbf")) source.fail_at(0, "a byte order mark is not allowed in JSON");
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) source.fail_at(zero, "a zero byte");
  Builder builder(source, limits, take);
  nlohmann::json::sax_parse(Iterator{&source}, Iterator{&source}, &builder);
  return builder.result();
}

}  // namespace

JsonValue parse_json(std::string_view text, const JsonLimits& limits, std::string_view source) {
  return parse(text, limits, source, 0, nullptr);
}

void parse_json_members(std::string_view text, const JsonLimits& limits, std::string_view source,
                        std::uint64_t first_offset, const Take& take) {
  parse(text, limits, source, first_offset, &take);
}

JsonValue read_json(const std::string& path, const JsonLimits& limits, std::uint64_t max_bytes) {
  return parse_json(read_whole_file(path, max_bytes), limits, path);
}

}  // namespace tally
