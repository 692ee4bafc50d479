// Words as perplexities of Wikitext-103 count them: each run of characters except Unicode's White_Space is a word, and
// so is each line end. Bytes that are not UTF-8 count as characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

// Counts words of a text that arrives in parts, cut anywhere.
class WordCounter {
 public:
  void add(std::string_view text);
  std::int64_t words() const { return words_ + (!in_word_ && !held_.empty() ? 1 : 0); }

 private:
  void add_whole(std::string_view text);

  std::int64_t words_ = 0;
  bool in_word_ = false;
  std::string held_;  // possibly the beginning of a multi-byte white space
};

std::int64_t count_words(std::string_view text);

}  // namespace tally
