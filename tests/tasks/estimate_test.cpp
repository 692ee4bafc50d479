// Compares the estimates of a run with the actual run.
#include "tasks/checks/estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "tasks/checks/bench.hpp"
#include "tasks/runs/train.hpp"
#include "tests/devices.hpp"
#include "tests/tasks/measured_peak.hpp"

namespace tally {
namespace estimate_test {

RunConfig quick(const std::string& encoding, const std::vector<std::pair<std::string, std::string>>& settings = {}) {
  RunConfig config = RunConfig::make("flip-flop", encoding, "quick");
  for (const auto& [name, value] : settings) config.set(name, value);
  return config;
}

using testing::expect_exact;
using Settings = std::vector<std::pair<std::string, std::string>>;

// Several tiles of keys and of rows, with partial last tiles.
RunConfig small(const std::string& encoding, const Settings& more = {}) {
  Settings all{
      {"task.length", "150"}, {"model.width", "16"}, {"model.layers", "2"}, {"batch", "2"}, {"eval-batch", "3"}};
  all.insert(all.end(), more.begin(), more.end());
  return quick(encoding, all);
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

TEST(Estimate, MemoryOfEveryEncodingIsThatOfTheRun) {
  std::size_t n = 0;
  for (const EncodingEntry* entry : encoding_registry()) {
    const char* const form = n++ % 3 == 0 ? "composed" : "tiled";
    expect_exact(small(entry->name, {{"model.attention", form}}), formatted("{} {}", entry->name, form));
  }
}

// If an encoding's form depends on learned values, the estimate is an upper bound and is marked as one.
TEST(Estimate, MemoryThatIsLearnedIsToldAtItsMost) {
  for (const EncodingEntry* entry : encoding_registry()) {
    const RunConfig config = small(entry->name);
    EXPECT_EQ(estimate_training(config, *config.make_task()).at_most, entry->traits.memory_is_learned) << entry->name;
  }
  const auto told = [](const RunConfig& config) {
    const MemoryEstimate estimate = estimate_training(config, *config.make_task());
    EXPECT_TRUE(estimate.at_most);
    return estimate.total() - estimate.data;
  };
  // Initially every text is within FIRE's threshold, and memory is below the estimate. It equals the estimate once the
  // threshold is learned to be shorter, or if texts exceed the initial threshold.
  for (const char* encoding : {"fire", "cope+fire", "0:none,1:fire@0-1,rope@2-3"}) {
    const RunConfig within = small(encoding);
    EXPECT_LT(testing::measured_peak(within, false), told(within)) << encoding;
    EXPECT_EQ(testing::measured_peak(within, true), told(within)) << encoding;
  }
  const RunConfig beyond =
      small("fire", {{"task.length", "530"}, {"batch", "1"}, {"eval-batch", "1"}, {"model.layers", "1"}});
  EXPECT_EQ(testing::measured_peak(beyond, false), told(beyond));
}

TEST(Estimate, MemoryWithEveryOptionIsThatOfTheRun) {
  const std::vector<Settings> options{{{"model.dropout", "0.1"}},
                                      {{"model.dropout", "0.1"}, {"model.attention", "composed"}},
                                      {{"optimiser.clip", "1"}, {"optimiser.name", "sgd"}},
                                      {{"optimiser.name", "sgd"}, {"optimiser.momentum", "0.9"}},
                                      {{"model.activation", "swiglu"}, {"model.norm", "rms"}, {"model.tied", "true"}},
                                      {{"model.norm-place", "post"}, {"model.final-norm", "false"}},
                                      {{"model.residual", "parallel"},
                                       {"model.activation", "gelu-tanh"},
                                       {"model.head-width", "12"},
                                       {"model.kv-heads", "2"}},
                                      {{"model.qk-norm", "head"}},
                                      {{"model.qk-norm", "full"}, {"model.norm", "rms"}, {"model.kv-heads", "2"}},
                                      {{"dtype", "f64"}},
                                      {{"eval-batch", "40"}},
                                      {{"batch", "5"}, {"micro-batch", "2"}},
                                      {{"batch", "7"}, {"micro-batch", "1"}, {"model.tied", "true"}},
                                      {{"batch", "1"}, {"task.length", "600"}}};
  const std::vector<std::string> encodings{"none", "cope", "cope@0-1,alibi@2-3", "cope+rope", "0:none,1:fox"};
  for (std::size_t n = 0; n < options.size(); ++n) {
    const std::string& encoding = encodings[n % encodings.size()];
    expect_exact(small(encoding, options[n]), formatted("{}, {}", encoding, options[n].back().first));
  }
}

TEST(Estimate, MemoryOfAnLstmIsThatOfTheRun) {
  for (const Settings& settings : {Settings{}, {{"model.dropout", "0.1"}, {"model.layers", "1"}}, {{"dtype", "f64"}}}) {
    Settings all{{"model.kind", "lstm"}};
    all.insert(all.end(), settings.begin(), settings.end());
    expect_exact(small("none", all), all.back().first);
    if (testing::only_small_kernels(testing::on_cuda_host)) continue;
    set_default_device(testing::on_cuda_host);
    all.insert(all.end(), {{"task.length", "12"}, {"model.width", "8"}});
    expect_exact(small("none", all), all.back().first);
    set_default_device({});
  }
}

// Every thread has scratch memory of its own.
TEST(Estimate, MemoryIsThatOfSoManyThreads) {
  const int threads = thread_count();
  std::vector<double> told;
  for (const int count : {1, 5}) {
    set_thread_count(count);
    expect_exact(small("cope"), formatted("{} threads", count));
    told.push_back(estimate_training(small("cope"), *small("cope").make_task()).total());
  }
  set_thread_count(threads);
  EXPECT_LT(told[0], told[1]);
}

// CUDA kernels use scratch memory of their own.
TEST(Estimate, MemoryOnACudaDeviceIsThatOfTheRun) {
  if (testing::only_small_kernels(testing::on_cuda_host)) GTEST_SKIP() << "under ThreadSanitizer";
  set_default_device(testing::on_cuda_host);
  for (const char* encoding : {"none", "cope", "cope-mlp", "stick-breaking", "t5", "path"}) {
    const RunConfig config =
        small(encoding, {{"eval-batch", "1"}, {"batch", "1"}, {"task.length", "80"}, {"model.layers", "1"}});
    expect_exact(config, encoding);
  }
  set_default_device({});
}

TEST(Estimate, MemoryIsThatOfATrace) {
  for (const char* encoding : {"none", "relative", "stick-breaking", "cope@0-1,alibi@2-3"}) {
    for (const bool with_gradients : {false, true}) {
      const RunConfig config = small(encoding);
      const std::unique_ptr<Task> task = config.make_task();
      const double told = estimate_trace(config, *task, 3, 150, with_gradients).total();
      reset_peak_memory();
      const std::size_t before = memory_counters().live_bytes;
      const std::unique_ptr<SequenceModel> model = config.make_model(*task);
      trace_pass(*model, collate(examples_of(*task, "train", 0, 3)), with_gradients);
      EXPECT_EQ(told, static_cast<double>(memory_counters().peak_bytes - before)) << encoding << with_gradients;
    }
  }
}

TEST(Estimate, MemoryIsThatOfWhatIsTimed) {
  for (const char* encoding : {"none", "cope", "rope", "relative"}) {
    for (const char* form : {"tiled", "composed"}) {
      RunConfig config = RunConfig::make("flip-flop", encoding, "paper");
      for (const auto& [name, value] :
           {std::pair{"model.width", "64"}, {"model.attention", form}, {"batch", "2"}, {"length", "200"}}) {
        config.set(name, value);
      }
      BenchOptions options(std::move(config));
      options.steps = 1;
      options.warmup = 0;
      EXPECT_EQ(estimate_attention(options).total(), bench_attention(options).real("tensor_peak_bytes"))
          << encoding << " " << form;
    }
  }
}

TEST(Estimate, NumbersReadBackFromACountingDeviceAreZero) {
  const Device meta = meta_of({});
  const Tensor x = Tensor::full({2, 3}, 7.0, DType::f32, meta);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(6, 0.0f));
  EXPECT_EQ(sum(x).item(), 0.0);
  EXPECT_THROW(Tensor::empty({1 << 30, 1 << 30}, DType::f32, meta), TooLarge);
}

// A whole run with its checkpoints and evaluations, then the same run resumed from the middle. Parameters and state are
// most of the memory, and a copy for a checkpoint would double it.
TEST(Estimate, MemoryIsThatOfARunAndOfOneThatIsResumed) {
  const std::string folder = ::testing::TempDir() + "estimate_run";
  const RunConfig config = small("cope", {{"task.length", "16"},
                                          {"task.eval-count", "2"},
                                          {"task.sparse-count", "2"},
                                          {"task.dense-count", "2"},
                                          {"model.width", "256"},
                                          {"model.heads", "4"},
                                          {"batch", "3"},
                                          {"micro-batch", "1"},
                                          {"eval-batch", "2"},
                                          {"steps", "4"},
                                          {"optimiser.warmup", "0"},
                                          {"save-every", "2"}});
  const MemoryEstimate told = estimate_training(config, *config.make_task());
  const std::atomic<bool> never = false;
  TrainObserver nobody;
  const auto peak = [&](RunFolder run) {
    reset_peak_memory();
    const std::size_t before = memory_counters().live_bytes;
    train(run, nobody, never);
    return static_cast<double>(memory_counters().peak_bytes - before);
  };
  EXPECT_EQ(peak(RunFolder::create(folder, config, true)), told.total() - told.data);
  std::filesystem::remove(folder + "/results.json");
  std::filesystem::remove(folder + "/checkpoints/step-00000004.safetensors");
  EXPECT_EQ(peak(RunFolder::open(folder)), told.total() - told.data);

  const RunFolder run = RunFolder::open(folder);
  reset_peak_memory();
  const std::size_t before = memory_counters().live_bytes;
  const std::unique_ptr<SequenceModel> model = config.make_model(*config.make_task());
  load_tensors(model->parameters(), run.open_checkpoint(4).tensors("model."));
  EXPECT_EQ(estimate_loading(config, *config.make_task()).total(),
            static_cast<double>(memory_counters().peak_bytes - before));
  std::filesystem::remove_all(folder);
}

// Encodings by layer and head only cost memory and time in these layers and heads.
TEST(Estimate, OnlyLayersAndHeadsWithGatesPayForThem) {
  const auto told = [](const std::string& encoding) {
    const RunConfig config = quick(encoding, {{"model.attention", "composed"}, {"eval-batch", "1"}});
    return estimate_training(config, *config.make_task()).activations;
  };
  EXPECT_LT(told("none"), told("none@0-1,cope@2-3"));
  EXPECT_LT(told("none@0-1,cope@2-3"), told("cope"));
  EXPECT_LT(told("0:none,1:cope@0,none@1-3"), told("0:none,1:cope"));
}

// The CoPE paper's language models (see tasks.md of the published experiments), with parameter counts in millions as
// printed.
struct PublishedModel {
  std::string row;  // the row of the page on encodings
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
  std::map<std::string, std::pair<double, std::vector<std::string>>> rows;  // the printed count, and our counts
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
    std::string line = formatted("| {} | {} | ", row, fixed(numbers.first, 1));
    for (const std::string& count : numbers.second)
      line += formatted("{}{}", &count == &numbers.second[0] ? "" : ", ", count);
    EXPECT_NE(page.find(line + " |\n"), std::string::npos) << line << " does not stand in nn/position/models.md";
  }
}

// GPT-2's shape and vocabulary. 130.8 needs a table per layer; a single table for the model would give 130.7.
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

// LLaMA's parts and vocabulary. The paper does not give the size of the CoPE table. A million parameters correspond to
// a table of 1,024 positions for each head of each layer.
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
  estimate.at_most = true;
  EXPECT_EQ(complaint({90 * gib, 5 * gib}),
            "[memory] this needs up to 6 GiB on the GPU (parameters 2 GiB, activations 4 GiB), but there are "
            "5 GiB on the GPU; advice");
}

TEST(Estimate, BytesAsText) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3e18), "2.6 EiB");
}

}  // namespace estimate_test
}  // namespace tally
