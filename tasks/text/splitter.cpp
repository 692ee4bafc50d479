#include "tasks/text/splitter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {

std::string pattern_error(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

TextPattern::TextPattern(const std::string& pattern) : pattern_(escape_for_print(pattern)) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_MULTILINE,
                                   &error, &offset, nullptr);
  check(code != nullptr, "pattern", "'{}': byte {}: {}", pattern_, offset, pattern_error(error));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if it fails, the pattern is interpreted
  code_ = {code, [](void* freed) { pcre2_code_free(static_cast<pcre2_code*>(freed)); }};
}

std::optional<std::size_t> TextPattern::match(std::string_view text, std::size_t at, std::uint32_t options) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 &pcre2_match_data_free);
  const auto run = [&](std::uint32_t more) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options | more, data.get(),
                       nullptr);
  };
  int count = run(0);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = run(PCRE2_NO_JIT);
  if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
  check(count >= 0, "pattern", "'{}': {}", pattern_, pattern_error(count));
  return pcre2_get_ovector_pointer(data.get())[1];
}

bool TextPattern::found_in(std::string_view text) const { return match(text, 0, 0).has_value(); }

std::size_t TextPattern::bytes_at(std::string_view text, std::size_t at) const {
  return match(text, at, PCRE2_ANCHORED).value_or(at) - at;
}

namespace {

struct KnownPattern {
  std::string_view name;
  std::string_view text;      // as published
  std::string_view tiktoken;  // the same as tiktoken writes it
};

constexpr std::array<KnownPattern, 3> known_patterns{{
    {"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     ""},
    {"cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s+(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s)",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|)"
     R"(\s*[\r\n]|\s+(?!\S)|\s)"},
}};

const KnownPattern* find_known(std::string_view name_or_text) {
  for (const KnownPattern& known : known_patterns) {
    if (name_or_text == known.name || name_or_text == known.text ||
        (!known.tiktoken.empty() && name_or_text == known.tiktoken)) {
      return &known;
    }
  }
  return nullptr;
}

bool is_known_to_pcre2(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// The contents of the braces of \p{...}, rewritten for PCRE2. A script name means the property Script in other
// programs, but Script_Extensions in PCRE2 10.40 and later unless it has the prefix "sc:". Older versions of PCRE2 lack
// the prefix.
std::string property_for_pcre2(std::string_view inside) {
  const bool is_negated = inside.starts_with('^');
  const std::string script = formatted("sc:{}", inside.substr(is_negated ? 1 : 0));
  return is_known_to_pcre2(formatted("\\p{{{}}}", script)) ? formatted("{}{}", is_negated ? "^" : "", script)
                                                           : std::string(inside);
}

// The parts of a pattern that mean the same in all programs: escapes; outside of classes also groups, lookahead,
// lookbehind and (?i:, the beginning of a class, {m}, {m,} and {m,n}, and single characters except "^" and "$".
// Programs differ in {,n}, {m}?, {m,n}+, verbs, callouts, recursion, other options, and in "&&" or "[" within a class.
std::size_t bytes_of_part(std::string_view pattern, std::size_t at, bool in_class) {
  constexpr const char* escape = R"(\\(?:[pPx]\{[^}]*\}|[pPx](?!\{)|[sSdDrntf]|[^A-Za-z0-9]))";
  constexpr const char* others_outside =
      R"(|\((?:\?(?:[:=!>]|<[=!]|i[:)])|(?![*?]))|\[\^?(?!\])|\{[0-9]+(?:\}(?![+?])|,[0-9]*\}(?!\+))|[^\\({\[^$])";
  constexpr const char* others_within = R"(|([&~|-])(?!\1)|[^\\\[&~|-])";
  static const TextPattern outside(formatted("{}{}", escape, others_outside)),
      within(formatted("{}{}", escape, others_within));
  return (in_class ? within : outside).bytes_at(pattern, at);
}

// The pattern with \s, \S, \d, \D and script names replaced by the Unicode properties that other programs mean by them.
std::string for_pcre2(std::string_view pattern) {
  constexpr std::size_t longest = 10'000;
  check(pattern.size() <= longest, "pattern", "has {} bytes; {} at most", pattern.size(), longest);
  check(!pattern.empty(), "pattern", "is empty");
  constexpr std::pair<std::string_view, std::string_view> properties[] = {
      {"\\s", R"(\p{White_Space})"}, {"\\S", R"(\P{White_Space})"}, {"\\d", R"(\p{Nd})"}, {"\\D", R"(\P{Nd})"}};
  std::string text;
  bool in_class = false;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::string_view part = pattern.substr(at, bytes_of_part(pattern, at, in_class));
    check(!part.empty() && part != std::string_view("\0", 1), "pattern",
          "'{}': byte {}: '{}' is not read: programs differ in what it means", escape_for_print(pattern), at,
          escape_for_print(pattern.substr(at, 8)));
    in_class = in_class ? part != "]" : part.starts_with('[');
    const auto known = std::ranges::find(properties, part, &std::pair<std::string_view, std::string_view>::first);
    if (known != std::end(properties)) {
      text += known->second;
    } else if (part.starts_with("\\p{") || part.starts_with("\\P{")) {
      text += formatted("{}{{{}}}", part.substr(0, 2), property_for_pcre2(part.substr(3, part.size() - 4)));
    } else {
      text += part;
    }
    at += part.size();
  }
  return text;
}

}  // namespace

const std::vector<std::string_view>& split_pattern_names() {
  static const std::vector<std::string_view> names{known_patterns[0].name, known_patterns[1].name,
                                                   known_patterns[2].name};
  return names;
}

std::string_view split_pattern_text(std::string_view name_or_text) {
  const KnownPattern* known = find_known(name_or_text);
  return known != nullptr ? known->text : name_or_text;
}

std::string_view split_pattern_name(std::string_view name_or_text) {
  const KnownPattern* known = find_known(name_or_text);
  return known != nullptr ? known->name : name_or_text;
}

std::string unicode_version() {
  std::array<char, 64> text{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text.data());
  return text.data();
}

SplitPattern::SplitPattern(std::string_view name_or_text, bool with_jit)
    : SplitPattern(std::vector<std::string>{std::string(name_or_text)}, with_jit) {}

SplitPattern::SplitPattern(std::vector<std::string> steps, bool with_jit) : steps_(std::move(steps)) {
  for (std::string& step : steps_) {
    const std::string pattern = for_pcre2(split_pattern_text(step));
    step = split_pattern_name(step);
    int error = 0;
    PCRE2_SIZE offset = 0;
    constexpr std::uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY;
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_parens_nest_limit(context, 50);
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, context);
    pcre2_compile_context_free(context);
    check(code != nullptr, "pattern", "'{}': {}", escape_for_print(step), code != nullptr ? "" : pattern_error(error));
    codes_.emplace_back(code, [](void* freed) { pcre2_code_free(static_cast<pcre2_code*>(freed)); });
    compiled_ = compiled_ && with_jit && pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
}

Splitter::Splitter(const SplitPattern& pattern) : pattern_(pattern) {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  constexpr std::uint32_t heap_kib = 64 * 1024, depth = 1'000'000;
  pcre2_set_heap_limit(context, heap_kib);
  pcre2_set_depth_limit(context, depth);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  if (pattern.compiled_) {
    pcre2_jit_stack* stack = pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{8} << 20, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
    stack_ = {stack, [](void* freed) { pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(freed)); }};
  }
  context_ = {context, [](void* freed) { pcre2_match_context_free(static_cast<pcre2_match_context*>(freed)); }};
  match_data_ = {data, [](void* freed) { pcre2_match_data_free(static_cast<pcre2_match_data*>(freed)); }};
  check(context != nullptr && data != nullptr, "pattern", "no memory to match it");
  ends_ = pcre2_get_ovector_pointer(data);
}

Splitter::Range Splitter::match(std::string_view piece, std::size_t step, std::size_t at, std::size_t offset) const {
  auto* data = static_cast<pcre2_match_data*>(match_data_.get());
  auto* context = static_cast<pcre2_match_context*>(context_.get());
  const pcre2_code* const code = static_cast<const pcre2_code*>(pattern_.codes_[step].get());
  const auto* text = reinterpret_cast<PCRE2_SPTR>(piece.data());
  // PCRE2 matches a run of blanks and then backtracks one blank at a time, so the limit is proportional to the
  // remaining length.
  const std::size_t left = std::min<std::size_t>(piece.size() - at, 500'000'000);
  pcre2_set_match_limit(context, static_cast<std::uint32_t>(1'000'000 + 4 * left));
  const int count = pattern_.compiled_ ? pcre2_jit_match(code, text, piece.size(), at, 0, data, context)
                                       : pcre2_match(code, text, piece.size(), at, PCRE2_NO_UTF_CHECK, data, context);
  if (count == PCRE2_ERROR_NOMATCH) return {piece.size(), piece.size()};
  if (count < 0 || ends_[1] <= ends_[0] || ends_[0] < at) [[unlikely]] {
    const std::string& pattern = pattern_.steps_[step];
    const auto where = [&](std::size_t byte) {
      return formatted("'{}': byte {} of the text: ", escape_for_print(pattern), offset + byte);
    };
    check(count >= 0, "pattern", "{}{}", where(at), pattern_error(count));
    fail("pattern", "{}matches an empty text; a pattern must match a character at least", where(ends_[0]));
  }
  return {ends_[0], ends_[1]};
}

std::size_t Splitter::well_formed_bytes(std::string_view text) {
  return std::min(find_invalid_utf8(text), text.size());
}

std::size_t Splitter::ill_formed_bytes(std::string_view text) {
  for (std::size_t at = 1; at < text.size(); ++at) {
    // A character has at most four bytes.
    const std::string_view next = text.substr(at, 4);
    const std::size_t wrong = find_invalid_utf8(next);
    if (wrong > 0) return at;
  }
  return text.size();
}

}  // namespace tally
