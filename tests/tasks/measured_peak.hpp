// Tiny configurations, and the memory of a run compared with its estimate.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <sstream>
#include <string>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/training/train_step.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::testing {

// Peak memory of two training steps and a batch of every evaluation. `moved`: learned values are set so that an
// encoding with EncodingTraits::memory_is_learned uses the most memory.
inline double measured_peak(const RunConfig& config, const Task& task, bool moved = true) {
  const Device device = default_device();
  reset_peak_memory(device);
  const std::size_t before = memory_counters(device).live_bytes;
  const std::unique_ptr<SequenceModel> model = config.make_model(task);
  for (const auto& [name, parameter] : model->parameters()) {
    if (moved && name.ends_with("fire.m")) kernels(device).fill(parameter.view(), 0.01);
  }
  const std::unique_ptr<Optimizer> optimizer =
      Optimizer::make(config.optimiser, train_only(model->parameters(), config.run.train));
  TrainStep step(*model, *optimizer, 1, config.run.at_once());
  const Batch batch = collate(examples_of(task, "train", 0, config.run.batch));
  for (std::int64_t n = 1; n <= 2; ++n) step(batch, n, 10);
  for (const Split& split : std::span(task.splits()).subspan(1)) {
    const std::int64_t sequences =
        split.count == 0 ? sequences_at_once(split) : std::min(sequences_at_once(split), split.count);
    evaluate(*model, task, split.name, sequences, sequences);
  }
  return static_cast<double>(memory_counters(device).peak_bytes - before);
}
inline double measured_peak(const RunConfig& config, bool moved = true) {
  return measured_peak(config, *config.make_task(), moved);
}

inline MemoryEstimate estimate(const RunConfig& config) { return estimate_training(config, *config.make_task()); }

// The estimate of a dry run equals the memory of the run to the byte.
inline void expect_exact(const RunConfig& config, const std::string& what) {
  const MemoryEstimate told = estimate(config);
  EXPECT_EQ(told.total() - told.data, measured_peak(config)) << what;
}

}  // namespace tally::testing
