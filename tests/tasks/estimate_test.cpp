// What is told of a run beforehand against what it turns out to be.
#include "tasks/estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/backend.hpp"
#include "tasks/bench.hpp"
#include "tasks/train.hpp"
#include "tests/devices.hpp"

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
  const Device device = default_device();
  reset_peak_memory(device);
  const std::size_t before = memory_counters(device).live_bytes;
  const std::unique_ptr<Transformer> model = config.make_model(*task);
  const std::unique_ptr<Optimizer> optimizer = Optimizer::make(config.optimiser, model->parameters());
  const Batch batch = collate(examples_of(*task, "train", 0, config.run.batch));
  {
    TrainStep step(*model, *optimizer, config.optimiser, 1);
    for (std::int64_t n = 1; n <= 2; ++n) step(batch, n, 10);
  }
  evaluate(*model, *task, "in-distribution", config.run.eval_batch, config.run.eval_batch);
  return static_cast<double>(memory_counters(device).peak_bytes - before);
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
  for (const char* encoding : {"none", "cope", "relative", "rope", "cope@0-1,alibi@2-3"}) {
    for (const auto& settings : {training, evaluation, deep, wide, dropout, sgd, composed}) {
      const RunConfig config = quick(encoding, settings);
      const double told = estimate_training(config, *config.make_task()).total();
      const double measured = measured_peak(config);
      EXPECT_GT(told, measured / 1.1) << encoding << ", " << settings.back().first;
      EXPECT_LT(told, measured * 1.6) << encoding << ", " << settings.back().first;
    }
  }
}

// Every shape that joins the scores, and what an encoding computes on the way to it.
TEST(Estimate, MemoryOfEveryEncodingIsThatOfTheRun) {
  const std::vector<std::pair<std::string, std::string>> usual{{"eval-batch", "2"}},
      long_texts{{"eval-batch", "1"}, {"batch", "1"}, {"task.length", "600"}, {"model.width", "32"}};
  for (const EncodingEntry* entry : encoding_registry()) {
    for (const auto& settings : {usual, long_texts}) {
      const RunConfig config = quick(entry->name, settings);
      const double told = estimate_training(config, *config.make_task()).total();
      const double measured = measured_peak(config);
      EXPECT_GT(told, measured / 1.1) << entry->name << ", " << settings.back().first;
      EXPECT_LT(told, measured * 1.6) << entry->name << ", " << settings.back().first;
    }
  }
}

// Kernels on CUDA devices hold sums of their own.
TEST(Estimate, MemoryOnACudaDeviceIsThatOfTheRun) {
  if (testing::only_small_kernels(testing::on_cuda_host)) GTEST_SKIP() << "under ThreadSanitizer";
  set_default_device(testing::on_cuda_host);
  for (const char* encoding : {"none", "cope", "cope-alibi", "cope-mlp", "stick-breaking", "t5"}) {
    const RunConfig config =
        quick(encoding, {{"eval-batch", "1"}, {"batch", "1"}, {"task.length", "400"}, {"model.width", "32"}});
    const double told = estimate_training(config, *config.make_task()).total();
    const double measured = measured_peak(config);
    EXPECT_GT(told, measured / 1.1) << encoding;
    EXPECT_LT(told, measured * 1.6) << encoding;
  }
  set_default_device({});
}

// A table by distance is as wide as it is long, and only as wide as the text where it is longer.
TEST(Estimate, MemoryOfShortTablesIsThatOfTheRun) {
  for (const char* encoding : {"relative", "relative+transformer-xl", "fox+relative"}) {
    for (const char* distances : {"16", "300"}) {
      for (const char* eval_batch : {"1", "4"}) {
        const RunConfig config = quick(encoding, {{"pe.relative.distances", distances},
                                                  {"pe.relative.far", "cap"},
                                                  {"eval-batch", eval_batch},
                                                  {"batch", "1"},
                                                  {"task.length", "600"},
                                                  {"model.width", "32"}});
        const double told = estimate_training(config, *config.make_task()).total();
        const double measured = measured_peak(config);
        EXPECT_GT(told, measured / 1.1) << encoding << ", " << distances << ", " << eval_batch;
        EXPECT_LT(told, measured * 1.6) << encoding << ", " << distances << ", " << eval_batch;
      }
    }
  }
}

// Sequences whose attention is traced, as a dump does it.
double measured_trace(const RunConfig& config, std::int64_t sequences, bool with_gradients) {
  const std::unique_ptr<Task> task = config.make_task();
  reset_peak_memory();
  const std::size_t before = memory_counters().live_bytes;
  const std::unique_ptr<Transformer> model = config.make_model(*task);
  const Batch batch = collate(examples_of(*task, "train", 0, sequences));
  if (with_gradients) backward(cross_entropy(model->forward(batch.tokens), batch.targets, batch.loss_mask));
  const NoGrad no_grad;
  std::vector<AttentionTrace> trace;
  model->forward(batch.tokens, {.trace = &trace});
  return static_cast<double>(memory_counters().peak_bytes - before);
}

TEST(Estimate, MemoryIsThatOfATrace) {
  for (const char* encoding : {"none", "cope", "relative", "alibi", "fox", "stick-breaking", "cope@0-1,alibi@2-3"}) {
    for (const char* layers : {"1", "4"}) {
      for (const bool with_gradients : {false, true}) {
        const RunConfig config = quick(encoding, {{"model.layers", layers}, {"task.length", "256"}});
        const double told = estimate_trace(config, *config.make_task(), 3, 256, with_gradients).total();
        const double measured = measured_trace(config, 3, with_gradients);
        EXPECT_GT(told, measured / 1.1) << encoding << ", " << layers << ", " << with_gradients;
        EXPECT_LT(told, measured * 1.6) << encoding << ", " << layers << ", " << with_gradients;
      }
    }
  }
}

TEST(Estimate, MemoryIsThatOfWhatIsTimed) {
  for (const char* encoding : {"none", "cope", "rope", "relative"}) {
    for (const char* form : {"tiled", "composed"}) {
      BenchOptions options;
      options.encoding = EncodingChoice::parse(encoding);
      options.model.width = 64;
      options.model.attention = form;
      options.batch = 2;
      options.length = 256;
      options.steps = options.warmup = 1;
      const ModelSetting model{options.model, options.encoding, options.vocabulary, options.length, options.dtype};
      const auto expect_near = [&](const char* what, const MemoryEstimate& estimate, double measured) {
        EXPECT_GT(estimate.total(), measured / 1.1) << what << " " << encoding << " " << form;
        EXPECT_LT(estimate.total(), measured * 1.6) << what << " " << encoding << " " << form;
      };
      expect_near("step", estimate_step(model, bench_optimiser(), 2, 256), bench_step(options).tensor_bytes);
      expect_near("attention", estimate_attention(model, 2, 256), bench_attention(options).tensor_bytes);
    }
  }
}

TEST(Estimate, LoadingCountsTheCheckpointBesideTheModel) {
  for (const auto& [optimiser, copies] : {std::pair{"adamw", 3}, std::pair{"sgd", 1}}) {
    const RunConfig config = quick("cope", {{"optimiser.name", optimiser}});
    const MemoryEstimate estimate = estimate_loading(config, *config.make_task());
    EXPECT_EQ(estimate.parameters, 4.0 * static_cast<double>(estimate.parameter_count));
    EXPECT_EQ(estimate.checkpoint, copies * estimate.parameters);
    EXPECT_EQ(estimate.total(), (1 + copies) * estimate.parameters);
  }
}

// Encodings by layer and by heads cost what they cost where they act.
TEST(Estimate, OnlyLayersAndHeadsWithGatesPayForThem) {
  const auto told = [](const std::string& encoding) {
    const RunConfig config = quick(encoding, {{"model.attention", "composed"}, {"eval-batch", "1"}});
    return estimate_training(config, *config.make_task()).activations;
  };
  EXPECT_LT(told("none"), told("none@0-1,cope@2-3"));
  EXPECT_LT(told("none@0-1,cope@2-3"), told("cope"));
  EXPECT_LT(told("0:none,1:cope@0,none@1-3"), told("0:none,1:cope"));
}

// tasks.md of the published experiments: language models of the CoPE paper, in millions as printed there.
struct PublishedModel {
  std::string row;  // what the page on encodings says of it
  std::string encoding;
  std::vector<std::pair<std::string, std::string>> settings;
  double millions;
};

std::string page_on_encodings() {
  std::ifstream file(TALLY_SOURCE_DIR "/nn/position/models.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void expect_published(const ModelOptions& options, std::int64_t vocabulary, std::int64_t context,
                      const std::vector<PublishedModel>& models) {
  std::map<std::string, std::pair<double, std::vector<std::string>>> rows;  // printed, and what is counted
  for (const PublishedModel& one : models) {
    EncodingChoice choice = EncodingChoice::parse(one.encoding);
    for (const auto& [name, value] : one.settings) choice.set_option(name, value);
    const NamedShapes shapes = parameter_shapes(options, choice, vocabulary, context);
    EXPECT_NEAR(static_cast<double>(parameter_count(shapes)) / 1e6, one.millions, 0.05) << one.encoding;
    EXPECT_EQ(parameter_count(shapes) - encoding_parameter_count(shapes),
              parameter_count(parameter_shapes(options, EncodingChoice::parse("none"), vocabulary, context)));
    auto& [printed, counted] = rows[one.row];
    printed = one.millions;
    const std::string count = fixed(static_cast<double>(parameter_count(shapes)) / 1e6, 2);
    if (counted.empty() || counted.back() != count) counted.push_back(count);
  }
  const std::string page = page_on_encodings();
  for (const auto& [row, numbers] : rows) {
    std::string line = concat("| ", row, " | ", fixed(numbers.first, 1), " | ");
    for (const std::string& count : numbers.second) line += concat(&count == &numbers.second[0] ? "" : ", ", count);
    EXPECT_NE(page.find(line + " |\n"), std::string::npos) << line << " does not stand in nn/position/models.md";
  }
}

// GPT-2's shape and vocabulary. 130.8 is that of a table per layer; with one for the whole model it would be 130.7.
TEST(Estimate, ParametersOfTheWikitextModels) {
  ModelOptions options;
  options.layers = 12;
  options.width = 768;
  options.heads = 12;
  options.tied = true;
  const std::string cope = "cope, P 64, one table for the model (`share=layers`) or one a layer";
  expect_published(options, 50257, 1024,
                   {{"absolute", "absolute", {}, 124.4},
                    {"relative, one table for the model (`share=model`)", "relative", {{"share", "model"}}, 123.7},
                    {cope, "cope", {{"share", "layers"}}, 123.7},
                    {cope, "cope", {}, 123.7},
                    {"cope, `gates=sep-keys`, a table a layer", "cope", {{"gates", "sep-keys"}}, 130.8}});
}

// LLaMA's parts and vocabulary. The paper names no size of the CoPE table: a million parameters are a table of 1,024
// positions for each head of each layer.
TEST(Estimate, ParametersOfTheCodeModels) {
  ModelOptions options;
  options.layers = 4;
  options.width = 256;
  options.heads = 8;
  options.hidden = 768;
  options.norm = "rms";
  options.activation = "swiglu";
  options.bias = false;
  const std::vector<std::pair<std::string, std::string>> table{{"p-max", "1024"}, {"share", "none"}};
  const std::string cope = "cope, cope+rope: P 1024, a table for each head of each layer";
  expect_published(options, 32000, 4096,
                   {{"absolute", "absolute", {}, 20.8},
                    {"rope", "rope", {}, 19.8},
                    {cope, "cope", table, 20.8},
                    {cope, "cope+rope", table, 20.8}});
}

TEST(Estimate, LengthsThatAnEncodingDoesNotTakeAreToldBeforehand) {
  const auto complaint = [](const std::string& encoding, std::int64_t length) -> std::string {
    const RunConfig config = quick(encoding, {{"pe.relative.distances", "10"}});
    try {
      check_length(model_of(config, *config.make_task()), length);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const char* encoding : {"relative", "cope+relative", "0:none,1:none@0-1,relative@2-3"}) {
    EXPECT_EQ(complaint(encoding, 10), "") << encoding;
    EXPECT_NE(complaint(encoding, 11).find("the table has 10 distances, the sequence 11 tokens"), std::string::npos)
        << encoding;
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

TEST(Estimate, AGpuHasMemoryOfItsOwn) {
  constexpr double gib = 1024.0 * 1024 * 1024;
  MemoryEstimate estimate;
  estimate.parameters = 2 * gib;
  estimate.activations = 4 * gib;
  estimate.data = 3 * gib;
  const auto complaint = [&](const MemoryAtHand& at_hand) -> std::string {
    try {
      check_fits(estimate, at_hand, "advice");
    } catch (const DoesNotFit& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint({9 * gib, {}}), "");
  EXPECT_EQ(complaint({3 * gib, 6 * gib}), "");
  EXPECT_EQ(complaint({5 * gib, {}}),
            "[memory] this needs about 9 GiB (parameters 2 GiB, activations 4 GiB, data 3 GiB), but there are "
            "5 GiB; advice");
  EXPECT_EQ(complaint({90 * gib, 5 * gib}),
            "[memory] this needs about 6 GiB on the GPU (parameters 2 GiB, activations 4 GiB), but there are "
            "5 GiB on the GPU; advice");
  EXPECT_EQ(complaint({2 * gib, 90 * gib}),
            "[memory] this needs about 3 GiB (data 3 GiB), but there are 2 GiB; advice");
}

TEST(Estimate, BytesAsText) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3e18), "2.6 EiB");
}

}  // namespace
}  // namespace tally
