// Every change of an option has an observable effect, or tally reports that it has none.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "core/device/allocator.hpp"
#include "core/device/backend.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/runs/preset.hpp"
#include "tasks/training/train_step.hpp"
#include "tests/error_of.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::effect_test {

// The observable outcome of a run.
struct Observed {
  std::vector<std::string> words;  // shapes, examples, names
  std::vector<double> numbers;     // losses, parameters, memory

  bool operator==(const Observed&) const = default;
};

RunConfig configured(const std::string& task, const std::string& encoding, const std::string& settings) {
  RunConfig config = testing::with(RunConfig::make(task, encoding), settings);
  config.validate();
  config.refuse_idle();
  return config;
}

void observe_data(const Task& task, Observed& seen) {
  for (const Split& split : task.splits()) {
    seen.words.push_back(formatted("{} {} {}", split.name, split.count, split.length));
    const std::int64_t count = split.count == 0 ? 6 : std::min<std::int64_t>(split.count, 6);
    for (const Example& example : examples_of(task, split.name, 0, count)) {
      seen.words.push_back(task.text(example));
      for (const std::uint8_t in_loss : example.loss_mask) seen.numbers.push_back(in_loss);
    }
  }
}

// Runs three steps and an evaluation.
Observed observe(const RunConfig& config) {
  Observed seen;
  const auto task = config.make_task();
  observe_data(*task, seen);
  reset_peak_memory(Device{});
  const auto before = memory_counters(Device{}).peak_bytes;
  const auto model = config.make_model(*task);
  const auto optimizer = Optimizer::make(config.optimiser, train_only(model->parameters(), config.run.train));
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  TrainStep train_step(*model, *optimizer, seed, config.run.at_once(), nullptr, config.random_positions(*task));
  TrainingOrder order(task->splits().front(), config.run.batch, seed);
  for (std::int64_t n = 1; n <= 3; ++n) {
    const StepReport report = train_step(batch_of(*task, order, n), n, config.run.steps);
    for (const double number : {report.loss, report.grad_norm, report.lr}) seen.numbers.push_back(number);
  }
  for (const auto& [name, parameter] : model->parameters()) {
    seen.words.push_back(formatted("{} {} {}", name, parameter.shape(), parameter.dtype()));
    for (const double number : parameter.to(DType::f64).to_vector<double>()) seen.numbers.push_back(number);
  }
  const Split& split = task->splits().at(1);
  const Evaluation e =
      evaluate(*model, *task, split.name, std::min<std::int64_t>(split.count, 3), config.run.eval_batch);
  seen.numbers.push_back(e.loss);
  // Some options only affect texts longer than the training sequences.
  try {
    const NoGrad only_values;
    const Tensor logits = model->forward(Tensor::zeros({1, 2 * task->max_length()}, DType::i32));
    for (const double number : logits.to(DType::f64).to_vector<double>()) seen.numbers.push_back(number);
  } catch (const Error& error) {
    seen.words.emplace_back(error.what());
  }
  seen.numbers.push_back(static_cast<double>(memory_counters(Device{}).peak_bytes - before));
  return seen;
}

// Other values of an option, as text. Some may contradict the other options.
std::vector<std::string> other_values(const OptionInfo& option) {
  std::vector<std::string> values;
  if (!option.allowed.empty()) {
    for (const std::string& value : option.allowed) {
      if (value != to_text(option.value)) values.push_back(value);
    }
  } else if (option.name == "train") {
    values.emplace_back("embedding.*");
  } else if (option.name == "lr-scale") {
    values.emplace_back("embedding.*=2");
  } else if (option.name == "short-factors" || option.name == "long-factors") {
    values.emplace_back("1.5/2/1/3");
  } else if (const auto* flag = std::get_if<bool>(&option.value)) {
    values.emplace_back(*flag ? "false" : "true");
  } else if (const auto* integer = std::get_if<std::int64_t>(&option.value)) {
    for (const std::int64_t value : {*integer + 2, *integer * 2, *integer + 1, *integer - 1, *integer + 64}) {
      if (value != *integer) values.push_back(to_text(value));
    }
  } else if (const auto* real = std::get_if<double>(&option.value)) {
    for (const double value : {*real + 0.25, *real / 2, *real + 2, *real / 16}) values.push_back(to_text(value));
  }
  return values;
}

// The outcome of a change: "changed", "told", "same"; empty if the value contradicts the other options.
std::string outcome(const std::string& task, const std::string& encoding, std::string settings, const std::string& name,
                    const std::string& value, const Observed& usual) {
  settings += formatted(" {}={}", name, value);
  if (value == "dynamic") settings += " pe.rope.trained-length=8";  // affects only longer texts
  try {
    const RunConfig config = configured(task, encoding, settings);
    const Observed seen = observe(config);
    if (!(seen == usual)) return "changed";
    for (const std::string& note : config.encoding.notes()) {
      if (note.find("changes nothing") != std::string::npos) return "told";
    }
    return "same";
  } catch (const Error& error) {
    return std::string(error.what()).find("has no effect") != std::string::npos ? "told" : "";
  }
}

// AdamW differs only by the decay.
bool is_same_without_decay(const std::string& settings, const std::string& name, const std::string& value) {
  return name == "optimiser.name" && value.starts_with("adam") &&
         settings.find("optimiser.weight-decay") == std::string::npos;
}

// Changes every wanted option separately, together with these settings, except the option `but_for`.
void expect_effects(const std::string& task, const std::string& encoding, const std::string& settings,
                    const std::string& wanted_prefix, const std::string& but_for = "") {
  const RunConfig config = configured(task, encoding, settings);
  observe(config);  // fills all caches
  const Observed usual = observe(config);
  ASSERT_TRUE(observe(config) == usual) << "two runs of the same options differ";
  for (const RunConfig::Group& group : config.groups()) {
    if (group.prefix != wanted_prefix) continue;
    std::vector<OptionInfo> options = group.options;
    options.insert(options.end(), group.others.begin(), group.others.end());
    for (const OptionInfo& option : options) {
      // These options affect evaluations, checkpoints or lines in files, so their effect is in the run's folder
      // (tests/runner).
      if (option.name.starts_with("eval-") && group.prefix.empty()) continue;
      if (option.name == "save-every" || option.name == "log-every") continue;
      const std::string name = group.prefix + option.name;
      if (name == but_for) continue;
      std::string found;
      for (const std::string& value : other_values(option)) {
        found = outcome(task, encoding, settings, name, value, usual);
        const bool works = found == "changed" || found == "told";
        if (works && option.allowed.empty()) break;  // one other number suffices, but each choice is tested
        if (works || option.allowed.empty() || is_same_without_decay(settings, name, value)) continue;
        ADD_FAILURE() << task << ", " << encoding << ": " << name << " " << to_text(option.value) << " -> " << value
                      << " changes nothing, and no one says so";
      }
      if (!option.allowed.empty()) continue;
      EXPECT_TRUE(found == "changed" || found == "told")
          << task << ", " << encoding << ": " << name << " changes nothing, and no one says so";
    }
  }
}

const std::string tiny =
    "task.length=12 model.width=16 model.heads=2 model.layers=2 batch=3 steps=5 optimiser.lr=0.01 eval-batch=2 ";

// Clipping has no effect on a rule that steps by signs, since it ignores the gradient's length.
bool sees_length(const OptimizerOptions& options) {
  const auto stepped = [&](double scale) {
    Tensor parameter = Tensor::full({2}, 1, DType::f64);
    set_requires_grad(parameter);
    set_gradient(parameter, Tensor::full({2}, 0.5, DType::f64));
    const auto optimizer = Optimizer::make(options, {{"p", parameter}});
    optimizer->update(optimizer->hyperparameters(1, 0.1, scale));
    return parameter.to_vector<double>();
  };
  return stepped(1) != stepped(0.3);
}

TEST(Options, OfOptimisersChangeARunOrAreRefused) {
  std::size_t n = 0;
  for (const OptimizerEntry* entry : optimizer_registry()) {
    OptimizerOptions options;
    options.set("name", entry->name);
    const bool clips = sees_length(options);
    EXPECT_TRUE(clips || (options.name != "sgd" && options.name != "adam" && options.name != "adamw"));
    // Each rule with its defaults, and with one of these; three steps are all that observe() runs.
    const std::vector<std::string> others{"optimiser.weight-decay=0.1", "optimiser.schedule=cosine optimiser.warmup=1",
                                          "optimiser.schedule=inverse-root optimiser.cooldown=0.4",
                                          "optimiser.clip=0.01"};
    for (const std::string& beside : {std::string(), others[n++ % others.size()]}) {
      expect_effects("flip-flop", "alibi",
                     formatted("{} {} model.layers=1 steps=3 optimiser.name={}", tiny, beside, entry->name),
                     "optimiser.", clips ? "" : "optimiser.clip");
    }
  }
  expect_effects("flip-flop", "alibi", tiny + "optimiser.name=sgd optimiser.momentum=0.5 steps=3", "optimiser.");
}

TEST(Options, OfTheModelChangeARunOrAreRefused) {
  for (const char* beside :
       {"", "model.activation=swiglu", "model.activation=relu model.norm=rms", "model.norm-place=post",
        "model.residual=parallel", "model.tied=true model.bias=false model.qk-norm=head",
        "model.attention=composed model.dropout=0.1", "model.init=authors model.hidden=24"}) {
    expect_effects("flip-flop", "alibi", tiny + beside, "model.");
  }
  expect_effects("flip-flop", "none",
                 "model.kind=lstm task.length=12 model.width=16 model.layers=2 batch=3 steps=5 optimiser.lr=0.01 "
                 "eval-batch=2",
                 "model.");
}

TEST(Options, OfTheRunChangeIt) {
  // A schedule depends on the length of the run.
  expect_effects("flip-flop", "alibi", tiny + "optimiser.schedule=linear", "");
}

TEST(Options, OfTasksChangeTheirData) {
  // Smaller than the quick presets, so that changes take effect soon.
  const std::map<std::string, std::string> small{
      {"addition", "task.max-digits=2"},
      {"cycle-navigation", "task.max-length=4"},
      {"even-pairs", "task.max-length=4"},
      {"last-sentence", "task.sentences=2 task.words=3"},
      {"missing-duplicate", "task.max-length=4"},
      {"modular-arithmetic", "task.max-length=6"},
      {"mqar-update", "task.vocabulary=32 task.pairs=3 task.updates=1 task.length=20"},
      {"passkey", "task.length=64"},
      {"string-map", "task.max-length=4"},
      {"counting", "task.max-tokens=40 task.max-operations=8"},
      {"flip-flop", "task.length=12"},
      {"mqar", "task.vocabulary=32 task.pairs=2 task.length=20"},
      {"parity", "task.max-length=4"},
      {"selective-copy", "task.blanks=6 task.dense-blanks=6 task.sparse-blanks=6"}};
  for (const TaskEntry* entry : task_registry()) {
    if (entry->reads_files) continue;
    std::string settings = "model.width=16 model.heads=2 model.layers=1 batch=2 steps=5 ";
    if (const auto own = small.find(entry->name); own != small.end()) {
      settings += own->second;
    } else {
      for (const auto& [name, value] : find_preset(entry->name, "quick").settings) {
        if (name.starts_with("task.")) settings += formatted("{}={} ", name, value);
      }
    }
    expect_effects(entry->name, "alibi", settings, "task.");
  }
}

TEST(Options, OfEncodingsChangeARunOrSayThatTheyDoNot) {
  const std::map<std::string, std::vector<std::string>> beside{
      {"rope",
       {"pe.rope.stretch=pi pe.rope.factor=2", "pe.rope.stretch=yarn",
        "pe.rope.stretch=llama3 pe.rope.trained-length=16", "pe.rope.stretch=longrope pe.rope.trained-length=16"}},
      {"cope-alibi", {"pe.cope-alibi.slopes=alibi", "pe.cope-alibi.slopes=learned"}}};
  std::size_t n = 0;
  for (const EncodingEntry* entry : encoding_registry()) {
    const std::string prefix = formatted("pe.{}.", entry->name), sum = formatted("{}+rope", entry->name);
    expect_effects("flip-flop", entry->name, tiny, prefix);
    if (const auto more = beside.find(entry->name); more != beside.end()) {
      for (const std::string& settings : more->second)
        expect_effects("flip-flop", entry->name, tiny + settings, prefix);
    }
    if (n++ % 5 != 0 || entry->name == std::string_view("rope") || entry->name == std::string_view("xpos")) continue;
    const std::string refused = testing::error_of([&] {
      const RunConfig config = configured("flip-flop", sum, tiny);
      config.make_model(*config.make_task());
    });
    if (refused.empty()) expect_effects("flip-flop", sum, tiny, prefix);
  }
}

}  // namespace tally::effect_test
