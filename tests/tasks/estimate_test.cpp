// What is told of a run beforehand against what it turns out to be.
#include "tasks/estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/allocator.hpp"
#include "tasks/train.hpp"

namespace tally {
namespace {

RunConfig quick(const std::string& encoding, const std::vector<std::pair<std::string, std::string>>& settings = {}) {
  RunConfig config = RunConfig::make("flip-flop", encoding, "quick");
  for (const auto& [name, value] : settings) config.set(name, value);
  return config;
}

// Highest use of memory in two training steps and a batch of evaluation.
double measured_peak(const RunConfig& config) {
  const std::unique_ptr<Task> task = config.make_task();
  reset_peak_memory();
  const std::size_t before = memory_counters().live_bytes;
  const std::unique_ptr<Transformer> model = config.make_model(*task);
  const std::unique_ptr<Optimizer> optimizer = Optimizer::make(config.optimiser, model->parameters());
  const Batch batch = collate(examples_of(*task, "train", 0, config.run.batch));
  for (std::int64_t n = 1; n <= 2; ++n) train_step(*model, *optimizer, config.optimiser, batch, n, 10, 1);
  evaluate(*model, *task, "in-distribution", config.run.eval_batch, config.run.eval_batch);
  return static_cast<double>(memory_counters().peak_bytes - before);
}

TEST(Estimate, ParametersAreThoseOfTheModel) {
  for (const EncodingEntry* entry : encoding_registry()) {
    for (const char* tied : {"true", "false"}) {
      const RunConfig config = quick(entry->name, {{"model.tied", tied}, {"model.norm", "rms"}});
      const std::unique_ptr<Task> task = config.make_task();
      const NamedShapes shapes = parameter_shapes(config, *task);
      const NamedTensors parameters = config.make_model(*task)->parameters();
      ASSERT_EQ(shapes.size(), parameters.size()) << entry->name;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        EXPECT_EQ(shapes[i].first, parameters[i].first);
        EXPECT_TRUE(shapes[i].second == parameters[i].second.shape()) << shapes[i].first;
      }
    }
  }
}

TEST(Estimate, MemoryIsThatOfTheRun) {
  const std::vector<std::pair<std::string, std::string>> training{{"eval-batch", "2"}},
      evaluation{{"eval-batch", "64"}},
      deep{{"eval-batch", "2"}, {"model.layers", "5"}, {"task.length", "64"}, {"model.activation", "swiglu"}},
      wide{{"eval-batch", "1"}, {"batch", "1"}, {"task.length", "16"}, {"model.width", "256"}},
      dropout{{"eval-batch", "2"}, {"model.dropout", "0.1"}}, sgd{{"eval-batch", "2"}, {"optimiser.name", "sgd"}},
      composed{{"eval-batch", "2"}, {"model.attention", "composed"}};
  for (const char* encoding : {"none", "cope", "relative", "rope"}) {
    for (const auto& settings : {training, evaluation, deep, wide, dropout, sgd, composed}) {
      const RunConfig config = quick(encoding, settings);
      const double told = estimate_training(config, *config.make_task()).total();
      const double measured = measured_peak(config);
      EXPECT_GT(told, measured / 1.1) << encoding << ", " << settings.back().first;
      EXPECT_LT(told, measured * 1.6) << encoding << ", " << settings.back().first;
    }
  }
}

TEST(Estimate, WhatCannotFitIsRefusedWithItsParts) {
  const RunConfig config = quick("rope", {{"task.length", "1048576"}, {"model.width", "4096"}});
  try {
    check_fits(estimate_training(config, *config.make_task()));
    FAIL() << "nothing was refused";
  } catch (const DoesNotFit& error) {
    const std::string text = error.what();
    for (const char* part : {"this needs about", "parameters", "gradients", "optimiser", "activations"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(Estimate, BytesAsText) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3e18), "2.6 EiB");
}

}  // namespace
}  // namespace tally
