// How sure a perplexity is: the loss of a text added up over its documents, the standard error of its mean, and that of
// the difference between two models on the same tokens. All of the text, none of the seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tally {

// A text in parts that follow each other.
struct LossBlocks {
  std::vector<double> nats;          // loss of each part, summed,
  std::vector<std::int64_t> tokens;  // over so many tokens

  double mean() const;  // nats per token; 0 without tokens
};

// Of parts that are taken to be independent of each other, the mean being a ratio of two sums over them:
//   error² = n/(n-1) sum_i (nats_i - mean tokens_i)² / (sum_i tokens_i)²
// Nothing for fewer than two parts.
std::optional<double> standard_error(const LossBlocks& blocks);

struct LossDifference {
  double mean = 0, error = 0;  // nats per token, a - b
};
// The same for the difference of two models part by part. Throws Error where the parts are not the same, or fewer than
// two.
LossDifference paired_difference(const LossBlocks& a, const LossBlocks& b);

// Adds up token by token, in the order of the text. Parts are its documents; where these are fewer than 20, stretches
// of 10,000 tokens if those are more; of more than 1,000 parts neighbours are joined in pairs until there are no more
// than that.
class LossBlockCounter {
 public:
  static constexpr std::int32_t no_end = -1;
  // end_of_text: the token that stands between documents, and belongs to the one it ends; no_end where none does.
  explicit LossBlockCounter(std::int32_t end_of_text) : end_of_text_(end_of_text) {}
  void add(std::int32_t target, double nats);
  LossBlocks blocks() const;

 private:
  std::int32_t end_of_text_;
  LossBlocks documents_, stretches_;
  bool ended_ = true;
};

}  // namespace tally
