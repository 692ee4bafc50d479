// Cuts text into the pieces within which a tokenizer merges. A text is first cut into stretches of well-formed UTF-8
// (RFC 3629) and of bytes that are not, each as long as can be. A stretch of wrong bytes is a piece; a well-formed one
// is cut by a pattern as if it were a text of its own, from left to right, first alternative that matches. Patterns
// with names are the published ones:
//   gpt2     GPT-2 (Radford et al. 2019)
//   llama3   of Llama 3's tokenizer.json
//   cl100k   of tiktoken for GPT-4; differs from llama3 where a text ends in blanks after a line end
// PCRE2 matches them, compiled where it can (JIT); \s is Unicode's White_Space, and \p{Han} its property Script.
// Letters and numbers are those of the Unicode version that PCRE2 knows.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace tally {

// "gpt2", "llama3", "cl100k".
const std::vector<std::string_view>& split_pattern_names();
// The text of a pattern with that name; of anything else the thing itself.
std::string_view split_pattern_text(std::string_view name_or_text);
// The name of a known pattern, also in the spelling of tiktoken; of another the text itself.
std::string_view split_pattern_name(std::string_view name_or_text);
// "14.0.0".
std::string unicode_version();

// A compiled pattern; many threads may share one.
class SplitPattern {
 public:
  // Patterns come from files, so they are not trusted. Throws Error naming the byte of the pattern for what PCRE2
  // refuses and for what other programs understand otherwise: \w, \b, \C, "^", "$", options (*...), "&&" within a
  // class, {,n}, {m,n}+.
  explicit SplitPattern(std::string_view name_or_text, bool with_jit = true);
  ~SplitPattern();
  SplitPattern(const SplitPattern&) = delete;
  SplitPattern& operator=(const SplitPattern&) = delete;

  const std::string& name() const { return name_; }  // or its text
  bool compiled() const { return compiled_; }

 private:
  friend class Splitter;
  std::string name_;
  void* code_ = nullptr;
  bool compiled_ = false;
};

// What one thread needs to match. The pattern must outlive it.
class Splitter {
 public:
  explicit Splitter(const SplitPattern& pattern);
  ~Splitter();
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  // Calls take(piece) for one piece after the other. Throws Error naming the byte where the pattern matches nothing, an
  // empty text, or takes more steps than is sound.
  template <class Take>
  void split(std::string_view text, Take&& take) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t valid = well_formed_bytes(text.substr(begin));
      for (std::size_t at = 0; at < valid;) {
        const std::size_t end = match(text.substr(begin, valid), at, begin);
        take(text.substr(begin + at, end - at));
        at = end;
      }
      begin += valid;
      if (begin == text.size()) break;
      const std::size_t wrong = ill_formed_bytes(text.substr(begin));
      take(text.substr(begin, wrong));
      begin += wrong;
    }
  }

 private:
  static std::size_t well_formed_bytes(std::string_view text);
  static std::size_t ill_formed_bytes(std::string_view text);
  // The end of the piece that begins at `at`. `offset`: of the stretch in the text, for the message.
  std::size_t match(std::string_view stretch, std::size_t at, std::size_t offset) const;

  const SplitPattern& pattern_;
  void* match_data_ = nullptr;
  void* context_ = nullptr;
  void* stack_ = nullptr;
  const std::size_t* ends_ = nullptr;
};

}  // namespace tally
