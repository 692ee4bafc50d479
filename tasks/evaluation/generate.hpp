// Free-running generation: the most probable symbol is the answer and becomes the next token.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

#include "nn/model.hpp"
#include "tasks/evaluation/evaluate.hpp"

namespace tally {

struct Generated {
  Tensor symbols;        // i32 [B, N]
  Tensor probabilities;  // f64 [B, N], of each symbol when it was chosen
};

// The N symbols that follow prompts i32 [B, T].
Generated generate(SequenceModel& model, const Tensor& prompts, std::int64_t count);

// The generated part of a sequence: the targets of positions first .. first + count - 1.
struct Answer {
  std::size_t first = 0, count = 0;
  bool operator==(const Answer&) const = default;
};
// The answer in a sequence of a split. Throws Error if the scored positions are not contiguous, or the answer is not
// fed.
Answer answer_of(const Example& example, std::string_view split, std::int64_t index);

// Like `evaluate`, on generated answers. The model gets each sequence up to its first scored position, then its
// own answers. Throws Error if the scored positions are not contiguous.
Evaluation evaluate_generated(SequenceModel& model, const Task& task, std::string_view split, std::int64_t count,
                              std::int64_t batch, const std::atomic<bool>* stop = nullptr,
                              const std::function<void(std::int64_t done)>& progress = {});

}  // namespace tally
