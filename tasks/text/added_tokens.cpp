#include "tasks/text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "tasks/text/normal_form.hpp"

namespace tally {

AddedTokens::AddedTokens(std::vector<Entry> entries) : entries_(std::move(entries)), states_(1) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.text.empty(); });
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.text.size();
  children_ = PairTable(bytes);
  struct Edge {
    std::int32_t from, to;
    unsigned char byte;
  };
  std::vector<Edge> edges;
  for (std::int32_t index = 0; std::cmp_less(index, entries_.size()); ++index) {
    std::int32_t state = 0;
    for (const char c : entries_[static_cast<std::size_t>(index)].text) {
      const auto byte = static_cast<unsigned char>(c);
      std::int32_t next = child(state, byte);
      if (next == 0) {
        next = static_cast<std::int32_t>(states_.size());
        states_.push_back({.length = states_[static_cast<std::size_t>(state)].length + 1});
        edges.push_back({state, next, byte});
        if (state == 0) {
          first_[byte] = next;
        } else {
          children_.add(state, byte, 0, next);
        }
      }
      state = next;
    }
    State& last = states_[static_cast<std::size_t>(state)];
    if (last.entry < 0) last.entry = index;
  }
  // Shorter tokens first, because a suffix is shorter.
  const auto length_of = [&](const Edge& edge) { return states_[static_cast<std::size_t>(edge.to)].length; };
  std::ranges::stable_sort(edges, {}, length_of);
  for (const Edge& edge : edges) {
    State& state = states_[static_cast<std::size_t>(edge.to)];
    for (std::int32_t suffix = edge.from; suffix != 0 && state.suffix == 0;) {
      suffix = states_[static_cast<std::size_t>(suffix)].suffix;
      state.suffix = child(suffix, edge.byte);
    }
    state.longest = state.entry >= 0 ? state.entry : states_[static_cast<std::size_t>(state.suffix)].longest;
  }
}

std::int32_t AddedTokens::child(std::int32_t state, unsigned char byte) const {
  if (state == 0) return first_[byte];
  const PairTable::Entry* const found = children_.find(state, byte);
  return found != nullptr ? found->result : 0;
}

// The earliest match, and the longest one there. A match is final once the current state no longer reaches back to its
// beginning.
AddedTokens::Match AddedTokens::next(std::string_view text, std::size_t from) const {
  Match best;
  std::int32_t state = 0;
  for (std::size_t at = from; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    std::int32_t next = child(state, byte);
    if (next == 0 && state == 0 && best.entry < 0) {  // the common case
      ++at;
      continue;
    }
    while (next == 0 && state != 0) {
      state = states_[static_cast<std::size_t>(state)].suffix;
      next = child(state, byte);
    }
    state = next;
    ++at;
    const State& here = states_[static_cast<std::size_t>(state)];
    if (best.entry >= 0 && at - static_cast<std::size_t>(here.length) > best.begin) return best;
    if (here.longest < 0) continue;
    const std::size_t begin = at - entries_[static_cast<std::size_t>(here.longest)].text.size();
    if (best.entry < 0 || begin <= best.begin) best = {begin, at, here.longest};
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
