#include "tasks/text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "tasks/text/normal_form.hpp"

namespace tally {

AddedTokens::AddedTokens(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.text.empty(); });
  std::ranges::stable_sort(entries_, {}, &Entry::text);
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  for (const Entry& entry : entries_) is_first_[static_cast<unsigned char>(entry.text[0])] = true;
}

// At each position, binary search finds the tokens that match one more byte of the text, until none is left.
AddedTokens::Match AddedTokens::next(std::string_view text, std::size_t from) const {
  Match best;
  for (std::size_t begin = from; begin < text.size() && best.entry < 0; ++begin) {
    if (!is_first_[static_cast<unsigned char>(text[begin])]) continue;
    auto first = entries_.begin(), last = entries_.end();
    for (std::size_t at = begin; at < text.size() && first != last; ++at) {
      const std::size_t size = at - begin;
      const auto byte_of = [&](const Entry& entry) { return static_cast<unsigned char>(entry.text[size]); };
      const auto byte = static_cast<unsigned char>(text[at]);
      first = std::partition_point(first, last, [&](const Entry& entry) { return byte_of(entry) < byte; });
      last = std::partition_point(first, last, [&](const Entry& entry) { return byte_of(entry) == byte; });
      if (first == last || first->text.size() > size + 1) continue;
      best = {begin, at + 1, static_cast<std::int32_t>(first - entries_.begin())};
      ++first;  // the others are longer
    }
  }
  return best;
}

bool AddedTokens::widen(std::string_view text, std::size_t done, Match& match) const {
  const AddedFlags& flags = entries_[static_cast<std::size_t>(match.entry)].flags;
  const std::string_view before = text.substr(0, match.begin), behind = text.substr(match.end);
  if (flags.single_word && (ends_with_word(before) || begins_with_word(behind))) return false;
  if (flags.lstrip) match.begin = std::max(done, match.begin - trailing_white_space(before));
  if (flags.rstrip) match.end += leading_white_space(behind);
  return match.begin < match.end;  // not within the white space that the previous token took
}

}  // namespace tally
