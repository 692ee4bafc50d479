#include "tasks/text/piece_counts.hpp"

#include <algorithm>
#include <exception>

#include "core/cpu/parallel.hpp"

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

void count_pieces(const SplitPattern& pattern, std::span<const std::string_view> texts, PieceCounts& counts) {
  // As many parts as threads, of about the same number of bytes; sums do not mind which text is in which part.
  const auto parts = static_cast<std::size_t>(thread_count());
  std::size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  std::vector<std::size_t> ends(parts, texts.size());
  std::size_t behind = 0, part = 0;
  for (std::size_t index = 0; index < texts.size() && part + 1 < parts; ++index) {
    behind += texts[index].size();
    if (behind >= bytes / parts * (part + 1)) ends[part++] = index + 1;
  }
  std::vector<PieceCounts> found(parts);
  std::vector<std::exception_ptr> errors(parts);
  parallel_for(static_cast<std::int64_t>(parts), [&](std::int64_t tile) {
    const auto at = static_cast<std::size_t>(tile);
    try {
      Splitter splitter(pattern);
      for (std::size_t index = at == 0 ? 0 : ends[at - 1]; index < ends[at]; ++index) {
        splitter.split(texts[index], [&](std::string_view piece) { found[at].add(piece, 1); });
      }
    } catch (...) {
      errors[at] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  if (counts.size() == 0) std::swap(counts, found[0]);
  for (const PieceCounts& other : found) counts.add(other);
}

}  // namespace tally
