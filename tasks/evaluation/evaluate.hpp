// The error of a model on a split, with counts.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/distributed/process_group.hpp"
#include "core/io/json.hpp"
#include "nn/model.hpp"
#include "tasks/data/batch.hpp"

namespace tally {

// The uncertainty of a perplexity. The loss of a text is summed by document. From these sums follow the standard error
// of the mean, and the standard error of the difference between two models on the same tokens. Both cover the choice of
// text, not of seeds.

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

// Scored and wrong tokens and sequences. A sequence is wrong if any of its tokens is.
struct ErrorCounts {
  std::int64_t scored = 0, wrong = 0;  // tokens
  std::int64_t sequences = 0, wrong_sequences = 0;

  double token_error() const { return scored > 0 ? static_cast<double>(wrong) / static_cast<double>(scored) : 0; }
  double sequence_error() const {
    return sequences > 0 ? static_cast<double>(wrong_sequences) / static_cast<double>(sequences) : 0;
  }
  // Adds one sequence. A sequence without scored tokens is not counted.
  void add_sequence(std::int64_t scored_tokens, std::int64_t wrong_tokens);
};

struct Evaluation : ErrorCounts {
  std::string split;
  bool generated = false;               // answers were fed back (tasks/evaluation/generate.hpp); there is no loss then
  double loss = 0;                      // mean over positions that count in the loss
  double loss_sum = 0;                  // their sum
  std::int64_t loss_count = 0;          // their number; sum and number exist only in this process
  std::optional<TextCounts> text = {};  // for text, the extent of the evaluation: its tokens are loss_count
  LossBlocks blocks = {};               // the loss of a text by its parts; only for text
  std::string breakdown;                // Task::breakdown()
  std::map<std::int32_t, ErrorCounts> by = {};  // counts for each of its keys, over a sequence's tokens of that key

  // Only for text: exp(loss) per token; the loss in bits per byte; the loss per word, and its exp. Exponentials are
  // infinite if they do not fit a double, such as a loss of 40 nats in words of 20 tokens.
  double perplexity() const;
  double bits_per_byte() const;
  double nats_per_word() const;
  double word_perplexity() const;

  // Standard error of the loss, over the parts of a text; nothing for fewer than two parts.
  std::optional<double> loss_error() const { return standard_error(blocks); }

  // Means over keys, each with equal weight. Published scores by length are such means.
  double mean_token_error() const;
  double mean_sequence_error() const;
};

// An evaluation of a task's split, with nothing counted yet.
Evaluation evaluation_of(const Task& task, std::string_view split);

// A scored token, and its key if errors are broken down.
struct ScoredToken {
  bool wrong = false;
  std::int32_t key = 0;
};
// Adds the scored tokens of one sequence.
void add_sequence(Evaluation& evaluation, const std::vector<ScoredToken>& tokens);

// Adds the scores of one batch. best [B, T] i64: the index of the largest logit. A scored position is wrong if this is
// not the target.
void add_scores(Evaluation& evaluation, const Tensor& best, const Batch& batch);

// Adds loss and scores of one batch. The loss is summed token by token in double, in the order of the targets. `parts`,
// if set, also gets each token's loss.
void evaluate_batch(SequenceModel& model, const Batch& batch, Evaluation& evaluation,
                    LossBlockCounter* parts = nullptr);

// The same for several batches in order, next() for next(), until one is empty. In a process group each rank computes
// its own batches, and all ranks add up all results in the order of the batches. Returns false if `stop` became true in
// between.
bool evaluate_batches(SequenceModel& model, const std::function<std::optional<Batch>()>& next, Evaluation& evaluation,
                      LossBlockCounter* parts = nullptr, const std::atomic<bool>* stop = nullptr);

// The numbers of the first ranks, `sizes` of them each. Every rank passes its own numbers and gets all numbers.
template <class T>
std::vector<std::vector<T>> gathered(const ProcessGroup& ranks, const std::vector<std::size_t>& sizes,
                                     std::span<const T> own) {
  std::vector<std::size_t> begins{0};  // in bytes
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks.size()); ++r) {
    begins.push_back(begins.back() + (r < sizes.size() ? sizes[r] * sizeof(T) : 0));
  }
  std::vector<T> all(begins.back() / sizeof(T));
  const auto part = [&](std::size_t r) { return std::span(all).subspan(begins[r] / sizeof(T), sizes[r]); };
  if (!own.empty()) std::ranges::copy(own, part(static_cast<std::size_t>(ranks.rank())).begin());
  ranks.all_gather(std::as_writable_bytes(std::span(all)), begins);
  std::vector<std::vector<T>> parts;
  for (std::size_t r = 0; r < sizes.size(); ++r) parts.emplace_back(part(r).begin(), part(r).end());
  return parts;
}

// The results of a traced pass: logits [B, T, V], mean loss, and the materialised attention of every layer from a
// second pass. The model has gradients if they are wanted.
struct TracedPass {
  Tensor logits, loss;
  std::vector<AttentionTrace> layers;
};
TracedPass trace_pass(SequenceModel& model, const Batch& batch, bool with_gradients);

// The number of sequences of a split that `count` specifies: all if 0. Throws Error if the split has fewer, and for an
// endless split without a count.
std::int64_t sequences_of(const Task& task, std::string_view split, std::int64_t count);

// Sequences of a split that all its evaluations compute at once: the most that have 1,024 tokens together, at least
// one. The sums of BLAS for a row depend on the number of rows and on the row's index among them. Another number would
// therefore change the last digits of the loss.
std::int64_t sequences_at_once(const Split& split);

// Evaluates the first `count` sequences of a split (all if 0; an endless split needs a count), in batches of `batch`.
// Once `stop` is true it ends after the current batch and returns the counts so far. `progress` gets the number of
// finished sequences before each batch.
Evaluation evaluate(SequenceModel& model, const Task& task, std::string_view split, std::int64_t count,
                    std::int64_t batch, const std::atomic<bool>* stop = nullptr,
                    const std::function<void(std::int64_t done)>& progress = {});

// The form used in metrics.jsonl, results.json and varied.json: step, split, loss (or that answers were generated),
// both errors and their counts. With a breakdown, "by" holds its name, both means over keys, and keys and counts as
// arrays. A number that is not finite is null. A perplexity's logarithm is written too, as loss or nats_per_word.
JsonValue evaluation_json(std::int64_t step, const Evaluation& evaluation);
// The number of a member; NaN for null, which represents a number that is not finite.
double real_or_nan(const JsonValue& object, std::string_view key);
// The reverse. Throws Error naming a missing member, and for impossible counts.
Evaluation evaluation_from_json(const JsonValue& json);

}  // namespace tally
