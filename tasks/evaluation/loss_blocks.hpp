// The uncertainty of a perplexity. The loss of a text is summed by document. From these sums follow the standard error
// of the mean, and the standard error of the difference between two models on the same tokens. Both cover the choice of
// text, not of seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tally {

// A text in consecutive parts.
struct LossBlocks {
  std::vector<double> nats;          // summed loss of each part
  std::vector<std::int64_t> tokens;  // its number of tokens

  double mean() const;  // nats per token; 0 without tokens
};

// Standard error of the mean. Parts are taken to be independent, and the mean is a ratio of two sums over them:
//   error² = n/(n-1) sum_i (nats_i - mean tokens_i)² / (sum_i tokens_i)²
// Nothing for fewer than two parts.
std::optional<double> standard_error(const LossBlocks& blocks);

struct LossDifference {
  double mean = 0, error = 0;  // nats per token, a - b
};
// The same for the difference of two models, part by part. Throws Error if the parts differ, or if there are fewer than
// two.
LossDifference paired_difference(const LossBlocks& a, const LossBlocks& b);

// Sums token by token, in the order of the text. Parts are documents. If there are fewer than 20 documents, parts are
// stretches of 10,000 tokens, provided that there are more of those. While there are more than 1,000 parts, neighbours
// are joined in pairs.
class LossBlockCounter {
 public:
  static constexpr std::int32_t no_end = -1;
  // end_of_text: the token between documents, which belongs to the document that it ends; no_end if there is none.
  explicit LossBlockCounter(std::int32_t end_of_text) : end_of_text_(end_of_text) {}
  void add(std::int32_t target, double nats);
  LossBlocks blocks() const;

 private:
  std::int32_t end_of_text_;
  LossBlocks documents_, stretches_;
  bool ended_ = true;
};

}  // namespace tally
