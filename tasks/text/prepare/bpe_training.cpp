#include "tasks/text/prepare/bpe_training.hpp"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "core/error.hpp"
#include "tasks/text/byte_characters.hpp"

namespace tally {
namespace {

struct Candidate {
  std::int64_t count;
  std::int32_t left, right;
  // The heap returns the largest element.
  bool operator<(const Candidate& other) const {
    if (count != other.count) return count < other.count;
    return left != other.left ? left > other.left : right > other.right;
  }
};

struct Pair {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // that hold it or held it; some twice
};

struct Word {
  std::size_t begin;  // in tokens_
  std::uint32_t size;
  std::int64_t count;
};

struct PairHash {
  std::size_t operator()(std::uint64_t pair) const {
    return static_cast<std::size_t>(fold_product(pair, 0x9e3779b97f4a7c15U));
  }
};

class Trainer {
 public:
  explicit Trainer(const PieceCounts& counts) {
    for (const auto& [piece, count] : counts) {
      if (piece.size() < 2) continue;
      check(piece.size() <= UINT32_MAX && words_.size() < UINT32_MAX, "tokenizer", "more than 2^32 pieces or bytes");
      words_.push_back({tokens_.size(), static_cast<std::uint32_t>(piece.size()), count});
      for (const char c : piece) tokens_.push_back(ids_by_byte[static_cast<unsigned char>(c)]);
    }
    for (std::uint32_t word = 0; word < words_.size(); ++word) {
      const std::int32_t* tokens = tokens_of(word);
      for (std::uint32_t at = 0; at + 1 < words_[word].size; ++at) change(tokens[at], tokens[at + 1], word, 1);
    }
    push_raised();
  }

  // The next pair to merge; its count is 0 if there is none.
  Candidate next() {
    while (!heap_.empty()) {
      Candidate top = heap_.top();
      heap_.pop();
      const std::int64_t count = pairs_[PairTable::pair_of(top.left, top.right)].count;
      if (count == top.count) return top;
      // A stale entry. If the count has grown since, a newer entry exists too.
      if (count > 0 && count < top.count) heap_.push({count, top.left, top.right});
    }
    return {0, 0, 0};
  }

  void merge(std::int32_t left, std::int32_t right, std::int32_t result) {
    std::vector<std::uint32_t> words = std::move(pairs_[PairTable::pair_of(left, right)].words);
    for (const std::uint32_t word : words) merge_in(word, left, right, result);
    pairs_.erase(PairTable::pair_of(left, right));
    push_raised();
  }

 private:
  std::int32_t* tokens_of(std::uint32_t word) { return tokens_.data() + words_[word].begin; }

  void change(std::int32_t left, std::int32_t right, std::uint32_t word, std::int64_t sign) {
    const std::uint64_t key = PairTable::pair_of(left, right);
    Pair& pair = pairs_[key];
    pair.count += sign * words_[word].count;
    if (sign < 0) return;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
    raised_.push_back(key);
  }

  void merge_in(std::uint32_t word, std::int32_t left, std::int32_t right, std::int32_t result) {
    std::int32_t* tokens = tokens_of(word);
    const std::uint32_t size = words_[word].size;
    // Positions where the pair is replaced; their neighbours change too.
    merged_.assign(size + 1, 0);
    bool any = false;
    for (std::uint32_t at = 0; at + 1 < size; ++at) {
      if (tokens[at] != left || tokens[at + 1] != right) continue;
      merged_[at] = merged_[at + 1] = 1;
      any = true;
      ++at;
    }
    if (!any) return;
    for (std::uint32_t at = 0; at + 1 < size; ++at) {
      if (merged_[at] != 0 || merged_[at + 1] != 0) change(tokens[at], tokens[at + 1], word, -1);
    }
    std::uint32_t kept = 0;
    for (std::uint32_t at = 0; at < size; ++at, ++kept) {
      const bool is_merged = merged_[at] != 0;
      tokens[kept] = is_merged ? result : tokens[at];
      merged_[kept] = is_merged ? 1 : 0;
      if (is_merged) ++at;
    }
    words_[word].size = kept;
    for (std::uint32_t at = 0; at + 1 < kept; ++at) {
      if (merged_[at] != 0 || merged_[at + 1] != 0) change(tokens[at], tokens[at + 1], word, 1);
    }
  }

  void push_raised() {
    std::sort(raised_.begin(), raised_.end());
    raised_.erase(std::unique(raised_.begin(), raised_.end()), raised_.end());
    for (const std::uint64_t key : raised_) {
      const auto found = pairs_.find(key);
      if (found == pairs_.end() || found->second.count <= 0) continue;
      heap_.push(
          {found->second.count, static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xffffffff)});
    }
    raised_.clear();
  }

  std::vector<std::int32_t> tokens_;
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Pair, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<std::uint64_t> raised_;  // pairs whose count has grown since the last merge
  std::vector<char> merged_;
};

}  // namespace

void count_pieces(Splitter& splitter, std::string_view text, PieceCounts& counts) {
  splitter.split(text, [&](std::string_view piece) {
    const auto found = counts.find(piece);
    found != counts.end() ? ++found->second : counts[std::string(piece)] = 1;
  });
}

TokenizerParts train_bpe(const PieceCounts& counts, const BpeTraining& training) {
  const auto specials = static_cast<std::int64_t>(training.specials.size());
  constexpr std::int64_t largest = 1 << 24;
  check(training.vocabulary >= byte_count + specials && training.vocabulary <= largest, "tokenizer",
        "a vocabulary of {}; at least {} for the bytes and the special tokens, at most {}", training.vocabulary,
        byte_count + specials, largest);
  check(training.min_count >= 1, "tokenizer", "a least count of {}; it is at least 1", training.min_count);
  TokenizerParts parts = byte_tokenizer();
  parts.tokens.resize(byte_count);
  parts.specials.clear();
  parts.steps = {std::string(split_pattern_name(training.pattern))};
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::int32_t id = 0; id < byte_count; ++id) ids.emplace(parts.tokens[static_cast<std::size_t>(id)], id);

  Trainer trainer(counts);
  while (static_cast<std::int64_t>(parts.tokens.size()) + specials < training.vocabulary) {
    const Candidate best = trainer.next();
    if (best.count < training.min_count) break;
    const auto bytes = [&](std::int32_t id) -> const std::string& {
      return parts.tokens[static_cast<std::size_t>(id)];
    };
    const std::string joined = bytes(best.left) + bytes(best.right);
    const auto [entry, is_new] = ids.try_emplace(joined, static_cast<std::int32_t>(parts.tokens.size()));
    if (is_new) parts.tokens.push_back(joined);
    parts.merges.push_back({best.left, best.right, entry->second, static_cast<std::int32_t>(parts.merges.size())});
    trainer.merge(best.left, best.right, entry->second);
    if (training.progress) training.progress(static_cast<std::int64_t>(parts.tokens.size()));
  }
  for (const std::string& name : training.specials) {
    parts.specials.push_back({name, static_cast<std::int32_t>(parts.tokens.size())});
    parts.tokens.emplace_back();
  }
  return parts;
}

}  // namespace tally
