// From examples to tensors, and which examples a training step sees.
#pragma once

#include <cstdint>
#include <vector>

#include "core/math/random.hpp"
#include "core/tensor.hpp"
#include "tasks/data/task.hpp"

namespace tally {

// B sequences side by side; shorter ones are filled up at the end with token 0, which causal attention never sees from
// before and which no mask counts.
struct Batch {
  Tensor tokens;                        // i32 [B, T]
  Tensor targets;                       // i32 [B, T]
  Tensor loss_mask;                     // bool [B, T]
  Tensor score_mask;                    // bool [B, T]
  std::vector<std::int32_t> keys = {};  // [B, T], of Example::keys; empty if the task breaks nothing down
  std::vector<std::vector<std::int32_t>> starts = {};  // Example::starts of each sequence; empty where none has any

  Batch to(Device device) const;
  // Cut into batches of so many sequences, the last of what is left; 0: all of them. The tensors share their elements.
  std::vector<Batch> parts(std::int64_t sequences) const;
  // Of a device that counts memory; as collate makes them.
  static Batch without_values(std::int64_t sequences, std::int64_t length, Device device);
};

Batch collate(const std::vector<Example>& examples);

// The examples `begin` .. `end`-1 of a split.
std::vector<Example> examples_of(const Task& task, std::string_view split, std::int64_t begin, std::int64_t end);

// 0 .. count-1 in a random order.
std::vector<std::int64_t> random_order(std::int64_t count, Rng& rng);

// Which sequences of the training split a step reads: a pure function of the number read before, so that a resumed run
// reads the same ones as an uninterrupted run, even with another batch. An endless split is read without end. A fixed
// set is read in epochs, each in its own order; the last batch of an epoch holds the remaining sequences.
class TrainingOrder {
 public:
  TrainingOrder(const Split& split, std::int64_t batch, std::uint64_t seed);
  // The batch that comes after `seen` sequences.
  std::vector<std::int64_t> after(std::int64_t seen);
  // Number of sequences that the first `steps` steps read, all with this batch.
  std::int64_t seen_by(std::int64_t steps) const;
  // The batch of step n = 1, 2, ..., all with this batch.
  std::vector<std::int64_t> indices(std::int64_t step) { return after(seen_by(step - 1)); }

 private:
  std::int64_t count_, batch_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;  // whose order is in order_
  std::vector<std::int64_t> order_;
};

// These sequences of the training split.
Batch batch_of(const Task& task, const std::vector<std::int64_t>& indices);
// The batch that training step n = 1, 2, ... sees.
inline Batch batch_of(const Task& task, TrainingOrder& order, std::int64_t n) {
  return batch_of(task, order.indices(n));
}

}  // namespace tally
