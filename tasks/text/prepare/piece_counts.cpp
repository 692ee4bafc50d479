#include "tasks/text/prepare/piece_counts.hpp"

namespace tally {

void PieceCounts::add(std::string_view piece, std::int64_t count) {
  const auto text_of = [&](std::int32_t id) { return this->piece(static_cast<std::size_t>(id)); };
  const std::int32_t found = index_.find(piece, text_of);
  if (found >= 0) {
    entries_[static_cast<std::size_t>(found)].count += count;
    return;
  }
  check(entries_.size() < (std::size_t{1} << 31) - 1, "tokenizer", "more than 2^31 pieces");
  entries_.push_back({bytes_.size(), piece.size(), count});
  bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  index_.add(static_cast<std::int32_t>(entries_.size()) - 1, text_of);
}

void PieceCounts::add(const PieceCounts& other) {
  for (std::size_t index = 0; index < other.size(); ++index) add(other.piece(index), other.count(index));
}

void PieceCounts::drop_single() {
  PieceCounts kept;
  for (std::size_t index = 0; index < size(); ++index) {
    if (count(index) > 1) kept.add(piece(index), count(index));
  }
  *this = std::move(kept);
}

void count_pieces(Splitter& splitter, std::string_view text, PieceCounts& counts) {
  splitter.split(text, [&](std::string_view piece) { counts.add(piece, 1); });
}

}  // namespace tally
