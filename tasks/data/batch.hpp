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

}  // namespace tally
