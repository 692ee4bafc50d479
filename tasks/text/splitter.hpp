// Cuts text into the pieces within which a tokenizer merges. First, the text is cut into maximal stretches of
// well-formed UTF-8 (RFC 3629) and of other bytes. An ill-formed stretch is one piece. A well-formed stretch is cut by
// patterns as if it were a separate text, from left to right, by the first alternative that matches. These published
// patterns have names:
//   gpt2     GPT-2 (Radford et al. 2019)
//   llama3   from Llama 3's tokenizer.json
//   cl100k   tiktoken's for GPT-4; it differs from llama3 if a text ends in blanks after a line end
// PCRE2 matches them, with its JIT if available. \s is Unicode's White_Space, and \p{Han} its property Script. Letters
// and numbers follow PCRE2's Unicode version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace tally {

// A PCRE2 pattern that is searched in bytes: paths, and lines of texts.

// PCRE2's message for one of its error codes.
std::string pattern_error(int error);

class TextPattern {
 public:
  // "^" and "$" match at the ends of lines. Throws Error naming the pattern when PCRE2 refuses it.
  explicit TextPattern(const std::string& pattern);

  // Throws Error when the search exceeds its limit of steps.
  bool found_in(std::string_view text) const;
  // The number of bytes that match at this place, or 0.
  std::size_t bytes_at(std::string_view text, std::size_t at) const;

 private:
  // The end of the first match, or nothing.
  std::optional<std::size_t> match(std::string_view text, std::size_t at, std::uint32_t options) const;

  std::string pattern_;
  std::shared_ptr<void> code_;
};

// "gpt2", "llama3", "cl100k".
const std::vector<std::string_view>& split_pattern_names();
// The text of the pattern with that name; any other argument is returned unchanged.
std::string_view split_pattern_text(std::string_view name_or_text);
// The name of a known pattern, also in the spelling of tiktoken; any other text is returned unchanged.
std::string_view split_pattern_name(std::string_view name_or_text);
// "14.0.0".
std::string unicode_version();

// Compiled steps; many threads may share them. A step cuts a text into the matches of a pattern and the text between
// them. Each step cuts the pieces of the previous one as if they were separate texts.
class SplitPattern {
 public:
  // Patterns come from files, so they are not trusted. Throws Error naming the byte of the pattern if PCRE2 refuses it.
  // The same holds for syntax that other programs read differently: \w, \b, \C, "^", "$", options (*...), "&&" within a
  // class, {,n}, {m,n}+.
  explicit SplitPattern(std::string_view name_or_text, bool with_jit = true);
  // Without a step a text is one piece.
  explicit SplitPattern(std::vector<std::string> steps, bool with_jit = true);

  const std::vector<std::string>& steps() const { return steps_; }
  bool compiled() const { return compiled_; }

 private:
  friend class Splitter;
  std::vector<std::string> steps_;  // known patterns by their names
  std::vector<std::shared_ptr<void>> codes_;
  bool compiled_ = true;
};

// The scratch space of one thread for matching. The pattern must outlive it.
class Splitter {
 public:
  explicit Splitter(const SplitPattern& pattern);
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  // Calls take(piece) for each piece in order. Throws Error naming the byte if a pattern matches an empty text or
  // exceeds the limit of steps.
  template <class Take>
  void split(std::string_view text, Take&& take) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t valid = well_formed_bytes(text.substr(begin));
      const std::string_view stretch = text.substr(begin, valid);
      if (pattern_.steps_.empty() && valid > 0) take(stretch);
      if (!pattern_.steps_.empty()) cut(stretch, 0, begin, take);
      begin += valid;
      if (begin == text.size()) break;
      const std::size_t wrong = ill_formed_bytes(text.substr(begin));
      take(text.substr(begin, wrong));
      begin += wrong;
    }
  }

 private:
  struct Range {
    std::size_t begin, end;
  };
  static std::size_t well_formed_bytes(std::string_view text);
  static std::size_t ill_formed_bytes(std::string_view text);

  // Cuts by this step and the later ones. `offset`: of the piece in the text, for messages.
  template <class Take>
  void cut(std::string_view piece, std::size_t step, std::size_t offset, Take& take) {
    const bool is_last = step + 1 == pattern_.steps_.size();
    const auto further = [&](std::size_t begin, std::size_t end) {
      if (begin == end) return;
      const std::string_view part = piece.substr(begin, end - begin);
      if (is_last) return take(part);
      cut(part, step + 1, offset + begin, take);
    };
    for (std::size_t at = 0; at < piece.size();) {
      const Range found = match(piece, step, at, offset);
      further(at, found.begin);
      further(found.begin, found.end);
      at = found.end;
    }
  }
  // The first match from `at` on. If there is none, an empty range at the end of the piece.
  Range match(std::string_view piece, std::size_t step, std::size_t at, std::size_t offset) const;

  const SplitPattern& pattern_;
  std::shared_ptr<void> stack_, context_, match_data_;
  const std::size_t* ends_ = nullptr;
};

}  // namespace tally
