// Words as perplexities of Wikitext-103 count them: runs of characters that are no white space (Unicode's White_Space),
// and every line end one more. Bytes that are not UTF-8 are characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

// Of a text that comes in parts, cut anywhere.
class WordCounter {
 public:
  void add(std::string_view text);
  std::int64_t words() const { return words_ + (!in_word_ && !held_.empty() ? 1 : 0); }

 private:
  void add_whole(std::string_view text);

  std::int64_t words_ = 0;
  bool in_word_ = false;
  std::string held_;  // what may be the beginning of a white space of several bytes
};

std::int64_t count_words(std::string_view text);

}  // namespace tally
