// Error of a model on a split, with counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "nn/model.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/evaluation/loss_blocks.hpp"

namespace tally {

// Scored tokens and sequences, and how many of them are wrong: a sequence in which any token is.
struct ErrorCounts {
  std::int64_t scored = 0, wrong = 0;  // tokens
  std::int64_t sequences = 0, wrong_sequences = 0;

  double token_error() const { return scored > 0 ? static_cast<double>(wrong) / static_cast<double>(scored) : 0; }
  double sequence_error() const {
    return sequences > 0 ? static_cast<double>(wrong_sequences) / static_cast<double>(sequences) : 0;
  }
  // Adds what a sequence has. One with nothing to score is not counted.
  void add_sequence(std::int64_t scored_tokens, std::int64_t wrong_tokens);
};

struct Evaluation : ErrorCounts {
  std::string split;
  bool generated = false;               // answers were fed back (tasks/evaluation/generate.hpp); there is no loss then
  double loss = 0;                      // mean over positions that count in the loss,
  double loss_sum = 0;                  // their sum,
  std::int64_t loss_count = 0;          // and their number; both in this process alone
  std::optional<TextCounts> text = {};  // what was scored, on text: tokens are loss_count
  LossBlocks blocks = {};               // the loss of a text by its parts; none on other tasks
  std::string breakdown;                // Task::breakdown(), and
  std::map<std::int32_t, ErrorCounts> by = {};  // the same counts for each of its keys; of a sequence what has that key

  // On text only: exp(loss), of a token; the loss in bits of a byte; the loss of a word, and exp of it. The
  // exponentials are infinite if they do not fit a double: a loss of 40 nats in words of 20 tokens.
  double perplexity() const;
  double bits_per_byte() const;
  double nats_per_word() const;
  double word_perplexity() const;

  // Of the loss, over the parts of a text; nothing where there are fewer than two.
  std::optional<double> loss_error() const { return standard_error(blocks); }

  // Means over keys, each with equal weight: of scores by length it is what is published.
  double mean_token_error() const;
  double mean_sequence_error() const;
};

// Of a task's split; nothing is counted yet.
Evaluation evaluation_of(const Task& task, std::string_view split);

// A token that was scored, and its key where errors are broken down.
struct ScoredToken {
  bool wrong = false;
  std::int32_t key = 0;
};
// Adds the scored tokens of one sequence.
void add_sequence(Evaluation& evaluation, const std::vector<ScoredToken>& tokens);

// Adds the scores of one batch, best [B, T] i64: where the largest logit stands. A position that counts is wrong where
// that is not the target.
void add_scores(Evaluation& evaluation, const Tensor& best, const Batch& batch);

// Adds loss and scores of one batch; the loss token by token in double, in the order of the targets. `parts`: where it
// is added up as well.
void evaluate_batch(SequenceModel& model, const Batch& batch, Evaluation& evaluation,
                    LossBlockCounter* parts = nullptr);

// The same of several batches in their order, next() for next(); nothing more at the first empty one. ProcessGroup
// share them, each computes its own and adds up all, in the order of the batches. False when `stop` became true in
// between.
bool evaluate_batches(SequenceModel& model, const std::function<std::optional<Batch>()>& next, Evaluation& evaluation,
                      LossBlockCounter* parts = nullptr, const std::atomic<bool>* stop = nullptr);

// What a pass leaves to be looked at: logits [B, T, V], mean loss, and the materialised attention of every layer from a
// second pass. The model has gradients if they are wanted.
struct TracedPass {
  Tensor logits, loss;
  std::vector<AttentionTrace> layers;
};
TracedPass trace_pass(SequenceModel& model, const Batch& batch, bool with_gradients);

// Number of sequences of a split that `count` asks for: all if 0. Throws Error when there are not so many, and for an
// endless split without a count.
std::int64_t sequences_of(const Task& task, std::string_view split, std::int64_t count);

// Sequences of a split that its evaluations compute at once, whoever asks: as many as have 1,024 tokens together, at
// least one. What BLAS adds up for a row depends on how many rows there are and where it stands among them, so that
// another number gives a loss with other last digits.
std::int64_t sequences_at_once(const Split& split);

// The first `count` sequences of a split (all if 0; an endless split needs a count), in batches of `batch`. Once `stop`
// is true it ends after the batch at work with what it has by then.
Evaluation evaluate(SequenceModel& model, const Task& task, std::string_view split, std::int64_t count,
                    std::int64_t batch, const std::atomic<bool>* stop = nullptr);

// As metrics.jsonl, results.json and varied.json have it: step, split, loss (or that answers were generated), both
// errors, their counts; where they are broken down, "by": the name, both means over keys, keys and counts as arrays.
// A number that is not finite is null; for a perplexity the logarithm is written too, as loss or nats_per_word.
JsonValue evaluation_json(std::int64_t step, const Evaluation& evaluation);
// The number of a member; NaN for null, which is written for a number that is not finite.
double real_or_nan(const JsonValue& object, std::string_view key);
// The reverse. Throws Error naming what is missing, and for counts that no evaluation has.
Evaluation evaluation_from_json(const JsonValue& json);

}  // namespace tally
