// Added tokens of a tokenizer, which are found in a text before it is cut into pieces (tokenizer.json: "added_tokens").
// The leftmost match wins, and the longest at one position.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

// The positions where a token is valid, and the white space that belongs to it.
struct AddedFlags {
  bool single_word = false;  // only without a word character next to it
  bool lstrip = false;       // with the white space before it
  bool rstrip = false;       // with the white space after it
  bool normalized = false;   // its normalised name is searched in the normalised text
  bool operator==(const AddedFlags&) const = default;
};

class AddedTokens {
 public:
  struct Entry {
    std::string text;
    std::int32_t id;
    AddedFlags flags;
  };
  // If two have the same text, the first is used. Empty texts are never found.
  explicit AddedTokens(std::vector<Entry> entries = {});

  bool empty() const { return entries_.empty(); }

  // Calls found(id) for the tokens in the text, and between(stretch, offset) for the stretches before, between and
  // after them that are not empty. A text in which single_word rejects a token is not searched again for shorter ones.
  template <class Between, class Found>
  void cut(std::string_view text, Between&& between, Found&& found) const {
    std::size_t done = 0;
    for (std::size_t at = empty() ? text.size() : 0; at < text.size();) {
      Match match = next(text, at);
      if (match.entry < 0) break;
      at = match.end;
      if (!widen(text, done, match)) continue;
      if (done < match.begin) between(text.substr(done, match.begin - done), done);
      found(entries_[static_cast<std::size_t>(match.entry)].id);
      done = match.end;
    }
    if (done < text.size()) between(text.substr(done), done);
  }

 private:
  struct Match {
    std::size_t begin = 0, end = 0;
    std::int32_t entry = -1;
  };
  Match next(std::string_view text, std::size_t from) const;
  // Applies the flags. Returns false if the token is not valid here. `done`: the end of the previous token.
  bool widen(std::string_view text, std::size_t done, Match& match) const;

  std::vector<Entry> entries_;        // sorted by their texts
  std::array<bool, 256> is_first_{};  // whether a text begins with the byte
};

}  // namespace tally
