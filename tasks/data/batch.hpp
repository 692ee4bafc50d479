// Builds tensors from examples, and chooses the examples of each training step.
#pragma once

#include <cstdint>
#include <vector>

#include "core/math/random.hpp"
#include "core/tensor.hpp"
#include "tasks/data/task.hpp"

namespace tally {

// B sequences of equal length. Shorter sequences are padded at the end with token 0. Causal attention masks the padding
// for earlier positions, and no mask counts it.
struct Batch {
  Tensor tokens;                                       // i32 [B, T]
  Tensor targets;                                      // i32 [B, T]
  Tensor loss_mask;                                    // bool [B, T]
  Tensor score_mask;                                   // bool [B, T]
  std::vector<std::int32_t> keys = {};                 // [B, T], of Example::keys; empty if the task has no breakdown
  std::vector<std::vector<std::int32_t>> starts = {};  // Example::starts of each sequence; empty if no sequence has any

  Batch to(Device device) const;
  // Splits into batches of `sequences` sequences, the last of the remainder; 0: one batch of all. The tensors share
  // their elements.
  std::vector<Batch> parts(std::int64_t sequences) const;
  // For a device that only counts memory. The tensors have the shapes and types that collate() gives.
  static Batch without_values(std::int64_t sequences, std::int64_t length, Device device);
};

Batch collate(const std::vector<Example>& examples);

// The examples `begin` .. `end`-1 of a split.
std::vector<Example> examples_of(const Task& task, std::string_view split, std::int64_t begin, std::int64_t end);

// 0 .. count-1 in random order.
std::vector<std::int64_t> random_order(std::int64_t count, Rng& rng);

// The sequences of the training split that a step reads. They are a pure function of the number read before. A resumed
// run therefore reads the same ones as an uninterrupted run, even with another batch size. An endless split never ends.
// A fixed set is read in epochs, each in its own order; the last batch of an epoch holds the remaining sequences.
class TrainingOrder {
 public:
  TrainingOrder(const Split& split, std::int64_t batch, std::uint64_t seed);
  // The batch that follows the first `seen` sequences.
  std::vector<std::int64_t> after(std::int64_t seen);
  // Number of sequences in the first `steps` steps, if all use this batch size.
  std::int64_t seen_by(std::int64_t steps) const;
  // The batch of step n = 1, 2, ..., if all steps use this batch size.
  std::vector<std::int64_t> indices(std::int64_t step) { return after(seen_by(step - 1)); }

 private:
  std::int64_t count_, batch_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;  // the epoch whose order is in order_
  std::vector<std::int64_t> order_;
};

// These sequences of the training split.
Batch batch_of(const Task& task, const std::vector<std::int64_t>& indices);
// The batch of training step n = 1, 2, ...
inline Batch batch_of(const Task& task, TrainingOrder& order, std::int64_t n) {
  return batch_of(task, order.indices(n));
}

// How a model computes a batch: some sequences at once. If a sequence holds several texts that must be masked from each
// other (Example::starts), each text becomes a sequence. No encoding, device or form of attention has to handle such
// texts. Tokens keep the positions that they have in the batch. (In language models, keys before the last end of a text
// are masked, and positions continue.)

class SequenceModel;

// `rows` sequences of `length` tokens, one after the other, beginning at token `first`.
struct SequencePart {
  std::int64_t first = 0, rows = 0, length = 0;
  std::int64_t first_sequence = 0;  // StepContext::first_sequence
  std::int64_t end() const { return first + rows * length; }
  bool operator==(const SequencePart&) const = default;
};

class SequenceParts {
 public:
  // at_once: sequences of the batch in one part; 0: all. With separate texts, a part has no more tokens than that many
  // sequences. Texts of one part are padded to the longest, and the others are more than half as long. Padding is
  // therefore less than half of the tokens. The grouping of texts does not depend on at_once.
  explicit SequenceParts(const Batch& batch, std::int64_t at_once = 0);

  const std::vector<SequencePart>& parts() const { return parts_; }
  std::int64_t size() const { return tokens.size(0); }  // tokens of all parts, with padding
  // [size]. No mask counts padding.
  Tensor tokens, targets, loss_mask;
  // Whether the sequences of the parts are texts of the batch. The positions of their tokens need not start at 0.
  bool separate() const { return separate_; }
  // For separate texts: the position of each token in the batch, i32 [size], and the end of all positions.
  Tensor positions() const;
  std::int64_t positions_end() const { return shape_[1]; }

  // Rearranges computed values, [size] of f64 or i64 on the host, into the order of the batch: [B, T].
  Tensor put_back(const Tensor& computed) const;

 private:
  static constexpr std::int64_t filled_up = -1;
  void take_texts(const Batch& batch, std::int64_t at_once);

  bool separate_ = false;
  std::vector<SequencePart> parts_;
  std::vector<std::int64_t> sources_;  // the batch's token at each place; empty: the order of the batch
  Shape shape_;                        // of the batch
};

// Whether the model uses the positions of tokens in the batch. Only encodings that are added to embeddings do.
bool reads_positions(const SequenceModel& model);

}  // namespace tally
