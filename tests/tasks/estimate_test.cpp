// Compares the estimates of a run with the actual run.
#include "tasks/checks/estimate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/runs/train.hpp"
#include "tasks/training/train_step.hpp"
#include "tests/nn/refusals.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::estimate_test {

using testing::configured;

// Peak memory of two training steps and a batch of every evaluation. `moved`: learned values are set so that an
// encoding with EncodingTraits::memory_is_learned uses the most memory.
double measured_peak(const RunConfig& config, const Task& task, bool moved = true) {
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
double measured_peak(const RunConfig& config, bool moved = true) {
  return measured_peak(config, *config.make_task(), moved);
}

MemoryEstimate estimate(const RunConfig& config) { return estimate_training(config, *config.make_task()); }

// The estimate of a dry run equals the memory of the run to the byte.
void expect_exact(const RunConfig& config, const std::string& what) {
  const MemoryEstimate told = estimate(config);
  EXPECT_EQ(told.total() - told.data, measured_peak(config)) << what;
}

// Several tiles of keys and of rows, with partial last tiles.
RunConfig small(const std::string& encoding, const std::string& more = "") {
  return configured("flip-flop", encoding,
                    "task.length=150 model.width=16 model.layers=2 batch=2 eval-batch=3 " + more);
}

// On CUDA kernels that the CPU executes, until the end of the scope.
struct OnCudaHost {
  OnCudaHost() { set_default_device(testing::on_cuda_host); }
  ~OnCudaHost() { set_default_device({}); }
};
const std::string on_host = "task.length=80 batch=1 eval-batch=1 model.layers=1";

TEST(Estimate, MemoryOfEveryEncodingIsThatOfTheRun) {
  std::size_t n = 0;
  for (const EncodingEntry* entry : encoding_registry()) {
    const std::string form = n++ % 3 == 0 ? "composed" : "tiled";
    expect_exact(small(entry->name, "model.attention=" + form), formatted("{} {}", entry->name, form));
  }
}

// If an encoding's form depends on learned values, the estimate is an upper bound and is marked as one.
TEST(Estimate, MemoryThatIsLearnedIsToldAtItsMost) {
  for (const EncodingEntry* entry : encoding_registry()) {
    EXPECT_EQ(estimate(small(entry->name)).at_most, entry->traits.memory_is_learned) << entry->name;
  }
  const auto told = [](const RunConfig& config) { return estimate(config).total() - estimate(config).data; };
  // Initially every text is within FIRE's threshold, and memory is below the estimate. It equals the estimate once the
  // threshold is learned to be shorter, or if texts exceed the initial threshold.
  for (const char* encoding : {"fire", "0:none,1:fire@0-1,rope@2-3"}) {
    const RunConfig within = small(encoding);
    EXPECT_LT(measured_peak(within, false), told(within)) << encoding;
    EXPECT_EQ(measured_peak(within, true), told(within)) << encoding;
  }
  const RunConfig beyond = small("fire", "task.length=530 batch=1 eval-batch=1 model.layers=1");
  EXPECT_EQ(measured_peak(beyond, false), told(beyond));
}

TEST(Estimate, MemoryWithEveryOptionIsThatOfTheRun) {
  const std::vector<std::string> encodings{"none", "cope", "cope@0-1,alibi@2-3", "cope+rope", "0:none,1:fox"};
  std::size_t n = 0;
  for (const char* options :
       {"model.dropout=0.1", "model.dropout=0.1 model.attention=composed", "optimiser.clip=1 optimiser.name=sgd",
        "optimiser.name=sgd optimiser.momentum=0.9", "model.activation=swiglu model.norm=rms model.tied=true",
        "model.norm-place=post model.final-norm=false",
        "model.residual=parallel model.activation=gelu-tanh model.head-width=12 model.kv-heads=2", "model.qk-norm=head",
        "model.qk-norm=full model.norm=rms model.kv-heads=2", "dtype=f64", "eval-batch=40", "batch=5 micro-batch=2",
        "batch=7 micro-batch=1 model.tied=true", "batch=1 task.length=600"}) {
    const std::string& encoding = encodings[n++ % encodings.size()];
    expect_exact(small(encoding, options), formatted("{}, {}", encoding, options));
  }
  for (const std::string options : {"", "model.dropout=0.1 model.layers=1 dtype=f64"}) {
    expect_exact(small("none", "model.kind=lstm " + options), "lstm " + options);
  }
}

// A window needs constants that are copied to the device within a step: the first key of each query, in two layers, for
// the softmax and for gates.
TEST(EstimateOfACapturedStep, CountsTheConstantsOfItsGraph) {
  if (testing::only_small_kernels(testing::on_cuda_host)) GTEST_SKIP() << "under ThreadSanitizer";
  const OnCudaHost device;
  for (const auto& [encoding, copies] : {std::pair{"none[window=20]", 1}, {"cope[window=20]", 2}}) {
    const RunConfig config = small(encoding, on_host +
                                                 " task.length=40 model.layers=2 model.heads=2 "
                                                 "model.attention=composed optimiser.warmup=0");
    expect_exact(config, encoding);
    const double called = estimate(testing::with(config.clone(), "steps=1")).total();  // this one is not captured
    EXPECT_EQ(estimate(config).total() - called, 2.0 * copies * 40 * sizeof(double)) << encoding;
  }
}

// Cases with options changed; a share of the values of every option.
void expect_all_exact(const std::vector<testing::EncodingCase>& cases) {
  constexpr std::int64_t length = 140;
  std::size_t seen = 0;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    if (testing::refused(cases[n].choice, length, length)) continue;
    ++seen;
    const std::string form = n % 2 == 0 ? "tiled" : "composed";
    RunConfig config =
        small("none", "task.length=140 model.layers=1 model.heads=2 batch=1 eval-batch=2 model.attention=" + form);
    config.encoding = cases[n].choice.clone();
    config.model.layers = std::max(config.model.layers, config.encoding.least_layers());
    expect_exact(config, formatted("{}, {}", cases[n].label, form));
  }
  EXPECT_GT(2 * seen, cases.size());  // some pairs of encodings cannot be combined
}

// With options, with windows, and in pairs, added or in different layers and heads.
TEST(EstimateOfOptions, MemoryIsThatOfTheRun) {
  expect_all_exact(testing::every(13, testing::all_cases()));
  expect_all_exact(testing::every(2, testing::changed_cases()));
  expect_all_exact(testing::every(4, testing::windowed_cases()));
  expect_all_exact(testing::every(80, testing::together_cases(8)));
}

// In bf16, saved activations take half as much (core/precision.md).
TEST(EstimateOfPrecision, AStepInBf16TakesThreeFifthsOfTheMemory) {
  const std::string wide = "model.width=32 ";
  set_matmul_precision(MatmulPrecision::bf16);
  for (const char* encoding : {"none", "cope", "path"}) expect_exact(small(encoding, wide), encoding);
  if (!testing::only_small_kernels(testing::on_cuda_host)) {
    const OnCudaHost device;
    expect_exact(small("cope", wide + on_host), "cope on cuda-host");
  }
  // The estimate for the paper's model, without running it.
  const auto told = [](const RunConfig& config, MatmulPrecision precision) {
    set_matmul_precision(precision);
    return estimate(config).total();
  };
  for (const std::string activation : {"gelu", "swiglu"}) {
    for (const char* encoding : {"none", "rope", "fox"}) {
      const RunConfig config =
          testing::with(RunConfig::make("flip-flop", encoding, "paper"), "model.activation=" + activation);
      const double ratio = told(config, MatmulPrecision::bf16) / told(config, MatmulPrecision::f32);
      EXPECT_LE(ratio, 0.6) << encoding << " " << activation;
      EXPECT_GE(ratio, 0.4) << encoding << " " << activation;
    }
  }
  set_matmul_precision(MatmulPrecision::f32);
}

// The logits are never materialised as a whole.
TEST(EstimateOfVocabularies, MemoryOfALargeVocabularyIsThatOfTheRun) {
  const auto large = [](const std::string& more) {
    return configured("mqar", "alibi", "task.vocabulary=8192 task.length=128 model.width=16 model.layers=1 " + more);
  };
  for (const char* settings :
       {"batch=24 micro-batch=7 eval-batch=8 dtype=f64", "batch=24 eval-batch=24 model.tied=true"}) {
    expect_exact(large(settings), settings);
  }
  // Twice the sequences add activations of 16 numbers a token, not logits of 8,192.
  EXPECT_LT(estimate(large("batch=64 eval-batch=1")).activations - estimate(large("batch=32 eval-batch=1")).activations,
            32 * 128 * 8192);
}

// Generation keeps a KV cache, while a pass over whole sequences does not.
TEST(EstimateOfAnswers, IsTheMemoryOfTheRun) {
  for (const char* encoding : {"rope", "cope", "none"}) {
    const RunConfig config =
        configured("selective-copy", encoding, "batch=1 model.layers=3 eval-batch=40 task.eval-count=40");
    const std::unique_ptr<Task> task = config.make_task();
    reset_peak_memory();
    const std::size_t before = memory_counters().live_bytes;
    {
      const auto model = config.make_model(*task);
      const auto optimizer = Optimizer::make(config.optimiser, model->parameters());
      TrainStep step(*model, *optimizer, 1);
      const Batch batch = collate(examples_of(*task, "train", 0, config.run.batch));
      step(batch, 1, 10);
      for (const Split& split : std::span(task->splits()).subspan(1)) {
        evaluate(*model, *task, split.name, 40, 40);
        evaluate_generated(*model, *task, split.name, 40, 40);
      }
    }
    const double told = estimate(config).total();
    EXPECT_EQ(told, static_cast<double>(memory_counters().peak_bytes - before)) << encoding;
    EXPECT_GE(told, estimate(testing::with(config.clone(), "eval-generated=false")).total());
  }
}

// A whole run with its checkpoints and evaluations, then the same run resumed from the middle. Parameters and state are
// most of the memory, and a copy for a checkpoint would double it.
TEST(Estimate, MemoryIsThatOfARunAndOfOneThatIsResumed) {
  const std::string folder = ::testing::TempDir() + "estimate_run";
  const RunConfig config =
      small("cope",
            "task.length=16 task.eval-count=2 task.sparse-count=2 task.dense-count=2 model.width=256 "
            "model.heads=4 batch=3 micro-batch=1 eval-batch=2 steps=4 optimiser.warmup=0 save-every=2");
  const double told = estimate(config).total() - estimate(config).data;
  const std::atomic<bool> never = false;
  TrainObserver nobody;
  const auto peak = [&](RunFolder run) {
    reset_peak_memory();
    const std::size_t before = memory_counters().live_bytes;
    train(run, nobody, never);
    return static_cast<double>(memory_counters().peak_bytes - before);
  };
  EXPECT_EQ(peak(RunFolder::create(folder, config, true)), told);
  std::filesystem::remove(folder + "/results.json");
  std::filesystem::remove(folder + "/checkpoints/step-00000004.safetensors");
  EXPECT_EQ(peak(RunFolder::open(folder)), told);

  const RunFolder run = RunFolder::open(folder);
  reset_peak_memory();
  const std::size_t before = memory_counters().live_bytes;
  const std::unique_ptr<SequenceModel> model = config.make_model(*config.make_task());
  load_tensors(model->parameters(), run.open_checkpoint(4).tensors("model."));
  EXPECT_EQ(estimate_loading(config, *config.make_task()).total(),
            static_cast<double>(memory_counters().peak_bytes - before));
  std::filesystem::remove_all(folder);
}

// The CoPE paper's language models (see tasks.md of the published experiments), with parameter counts in millions as
// printed.
struct PublishedModel {
  std::string encoding;
  std::vector<std::pair<std::string, std::string>> settings;
  double millions;
};

void expect_published(const ModelOptions& options, std::int64_t vocabulary, std::int64_t context,
                      const std::vector<PublishedModel>& models) {
  for (const auto& [encoding, settings, millions] : models) {
    EncodingChoice choice = EncodingChoice::parse(encoding);
    for (const auto& [name, value] : settings) choice.set_option(name, value);
    const NamedShapes shapes = parameter_shapes(options, choice, vocabulary, context);
    EXPECT_NEAR(static_cast<double>(parameter_count(shapes)) / 1e6, millions, 0.05) << encoding;
    EXPECT_EQ(parameter_count(shapes) - encoding_parameter_count(shapes),
              parameter_count(parameter_shapes(options, EncodingChoice::parse("none"), vocabulary, context)));
  }
}

// GPT-2's shape and vocabulary. 130.8 needs a table per layer; a single table for the model would give 130.7.
TEST(Estimate, ParametersOfTheWikitextModels) {
  ModelOptions options;
  options.layers = 12;
  options.width = 768;
  options.heads = 12;
  options.tied = true;
  expect_published(options, 50257, 1024,
                   {{"absolute", {}, 124.4},
                    {"relative", {{"share", "model"}}, 123.7},
                    {"cope", {{"share", "layers"}}, 123.7},
                    {"cope", {}, 123.7},
                    {"cope", {{"gates", "sep-keys"}}, 130.8}});
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
  expect_published(options, 32000, 4096,
                   {{"absolute", {}, 20.8}, {"rope", {}, 19.8}, {"cope", table, 20.8}, {"cope+rope", table, 20.8}});
}

AttentionMemory memory_of(const std::string& encoding) {
  const EncodingChoice choice = EncodingChoice::parse(encoding);
  return attention_memory(choice, choice.acting().front());
}

// Keys that every later token changes are a bias of all pairs.
TEST(AttentionMemory, GrowsWithTheSquareForKeysThatMove) {
  for (const Device device : {Device{}, testing::on_cuda_host}) {
    set_default_device(device);
    SCOPED_TRACE(to_text(device));
    for (const char* encoding : {"none", "cope"}) EXPECT_FALSE(memory_of(encoding).squares) << encoding;
    for (const char* encoding : {"path", "wall", "cope+path", "path+wall"}) {
      const AttentionMemory memory = memory_of(encoding);
      EXPECT_TRUE(memory.squares) << encoding << " " << memory.bytes;
      EXPECT_EQ(memory.form, "tiled") << encoding;
    }
  }
  set_default_device({});
}

}  // namespace tally::estimate_test
