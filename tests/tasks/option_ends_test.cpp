// Every number that an option accepts makes sense: at the ends of its range a tiny model trains with finite losses and
// gradients, and its attention still attends to something.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "nn/optimizer.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/training/train_step.hpp"
#include "tests/error_of.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::option_ends_test {

using testing::contains;

// Values that an option accepts at the ends of its range, and numbers just outside.
struct Ends {
  std::string name;
  std::vector<std::string> accepted, refused;
};

class EndsOf final : public OptionVisitor {
 public:
  explicit EndsOf(Options& options) { options.visit(*this); }

  void flag(std::string_view, bool&, std::string_view) override {}
  void integer(std::string_view name, std::int64_t&, std::string_view, std::int64_t minimum,
               std::int64_t maximum) override {
    all.push_back({std::string(name),
                   {to_text(minimum), to_text(maximum)},
                   {to_text(minimum - 1), to_text(maximum + 1), "9223372036854775808", "1e3", "nan"}});
  }
  void real(std::string_view name, double&, std::string_view, RangeEnd minimum, RangeEnd maximum) override {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    Ends ends{std::string(name), {}, {"nan", "inf", "-inf", "1e999"}};
    const auto add = [&](RangeEnd end, double outside) {
      const double beyond = std::nextafter(end.value, outside);
      ends.accepted.push_back(to_text(end.open ? std::nextafter(end.value, -outside) : end.value));
      if (end.open) ends.refused.push_back(to_text(end.value));
      if (std::isfinite(beyond)) ends.refused.push_back(to_text(beyond));
    };
    add(minimum, -infinity);
    add(maximum, infinity);
    all.push_back(std::move(ends));
  }
  void choice(std::string_view, std::string&, const std::vector<std::string_view>&, std::string_view) override {}
  void text(std::string_view, std::string&, std::string_view) override {}

  std::vector<Ends> all;
};

RunConfig tiny(const std::string& task, const std::string& encoding, const std::string& settings) {
  return testing::with(RunConfig::make(task, encoding),
                       "model.width=16 model.heads=2 model.layers=2 model.init=fan-in batch=2 steps=3 " + settings);
}

// Runs two steps and checks the resulting weights.
void expect_trains(const RunConfig& config, const Task& task) {
  const auto model = config.make_model(task);
  const auto optimizer = Optimizer::make(config.optimiser, model->parameters());
  TrainStep step(*model, *optimizer, 1, config.run.at_once());
  TrainingOrder order(task.splits().front(), config.run.batch, 1);
  for (std::int64_t n = 1; n <= std::min<std::int64_t>(2, config.run.steps); ++n) {
    const StepReport report = step(batch_of(task, order, n), n, config.run.steps);
    EXPECT_TRUE(std::isfinite(report.loss)) << report.loss;
    EXPECT_TRUE(std::isfinite(report.grad_norm) && report.grad_norm > 0) << report.grad_norm;
  }
  for (const auto& [path, parameter] : model->parameters()) {
    for (const double number : parameter.to(DType::f64).to_vector<double>()) ASSERT_TRUE(std::isfinite(number)) << path;
  }
  const NoGrad only_values;
  std::vector<AttentionTrace> trace;
  model->forward(batch_of(task, order, 1).tokens, {.trace = &trace});
  for (const AttentionTrace& layer : trace) {
    double most = 0;
    for (const double weight : layer.weights.to(DType::f64).to_vector<double>()) most = std::max(most, weight);
    EXPECT_GT(most, 1e-9) << "all weights of a layer are 0";
  }
}

// Whether it is accepted. A refusal must name one of these options. Settings that are too large to train here are only
// counted.
bool is_fine(const RunConfig& config, const std::vector<std::string>& names) {
  try {
    config.validate();
    const auto task = config.make_task();
    const auto parameters = static_cast<double>(parameter_count(parameter_shapes(config, *task)));
    EXPECT_GT(parameters, 0);
    const double tokens = static_cast<double>(task->max_length()) * static_cast<double>(config.run.batch);
    if (parameters < 3e5 && tokens < 2e3 && config.model.layers < 50) expect_trains(config, *task);
  } catch (const Diverged& error) {
    // The learning rate has no upper limit; a diverging run reports it.
    EXPECT_EQ(names.front(), "lr") << error.what();
  } catch (const Error& error) {
    const auto named = [&](const std::string& name) { return contains(error.what(), name); };
    EXPECT_TRUE(std::ranges::any_of(names, named)) << error.what();
    return false;
  }
  return true;
}

// Ends that tiny() refuses, since they are tied to another option that it does not change: a warm-up that is longer
// than the run, more heads than the width has numbers.
bool is_tied(const std::string& task, const std::string& name, const std::string& value) {
  static const std::string tied =
      " model.heads=65536 model.kv-heads=65536 model.width=1 optimiser.warmup=2147483647 "
      "optimiser.weight-decay=1000000 micro-batch=1048576 micro-batches=1048576 "
      "pe.contextual-rotary.rotary-dims=65536 pe.rope.rotary-dims=65536 pe.rope.beta-fast=5e-324 "
      "pe.rope.beta-slow=1.7976931348623157e+308 pe.rope.fastest=1 pe.rope.fastest=5e-324 "
      "pe.rope.high-freq-factor=0 pe.rope.low-freq-factor=1.7976931348623157e+308 "
      "counting/task.max-operations=1 counting/task.min-operations=1048576 last-x/task.far-gap=1 "
      "last-x/task.far-gap=1048576 last-x/task.farther-gap=2 last-x/task.farther-gap=1048576 "
      "last-x/task.length=4 last-x/task.near-gap=1048576 mqar/task.length=8 mqar/task.pairs=65536 "
      "mqar/task.vocabulary=4 mqar-update/task.length=8 mqar-update/task.pairs=1 mqar-update/task.pairs=65536 "
      "mqar-update/task.updates=65536 mqar-update/task.vocabulary=4 n-back/task.n=1000 n-back/task.pairs=2 "
      "passkey/task.length=32 passkey/task.statements=13 ";
  return contains(tied, formatted(" {}={} ", name, value)) ||
         contains(tied, formatted(" {}/{}={} ", task, name, value));
}

// Every number of these options at each end. Some need other choices than the defaults: if an option is refused, it is
// tried again together with the settings in `others`.
void expect_ends(const std::string& task, const std::string& encoding, const std::string& prefix,
                 const std::vector<Ends>& options, const std::string& beside,
                 const std::vector<std::string>& others = {}) {
  for (const Ends& option : options) {
    const std::string name = prefix + option.name;
    const auto fine_beside = [&](const std::string& settings, const std::string& value) {
      RunConfig config = tiny(task, encoding, beside + " " + settings);
      config.set(name, value);
      return is_fine(config, {option.name, formatted("[{}]", task)});
    };
    for (const std::string& value : option.accepted) {
      SCOPED_TRACE(formatted("{}, {}, {} = {}", task, encoding, name, value));
      bool is_accepted = fine_beside({}, value);
      if (!is_accepted) {
        for (const std::string& more : others) is_accepted = fine_beside(more, value) || is_accepted;
      }
      EXPECT_TRUE(is_accepted || is_tied(task, name, value)) << "an end of the range that is never accepted";
    }
    for (const std::string& value : option.refused) {
      RunConfig config = tiny(task, encoding, beside);
      EXPECT_THROW(config.set(name, value), Error) << name << " = " << value;
    }
  }
}

const std::string short_text = "task.length=12";

// Each rule with one schedule.
TEST(OptionEnds, OfOptimisersTrain) {
  std::size_t n = 0;
  for (const OptimizerEntry* entry : optimizer_registry()) {
    OptimizerOptions options;
    options.set("name", entry->name);
    for (const OptionInfo& info : list_options(options)) {
      if (info.name != "schedule") continue;
      expect_ends("flip-flop", "cope", "optimiser.", EndsOf(options).all,
                  formatted("{} optimiser.name={} optimiser.schedule={}", short_text, entry->name,
                            info.allowed[n++ % info.allowed.size()]));
    }
  }
}

TEST(OptionEnds, OfTheModelTrain) {
  ModelOptions options;
  for (const std::string beside : {"", " model.norm=rms model.tied=true"}) {
    expect_ends("flip-flop", "cope", "model.", EndsOf(options).all, short_text + beside);
  }
}

TEST(OptionEnds, OfTheRunTrain) {
  RunOptions options;
  expect_ends("flip-flop", "none", "", EndsOf(options).all, short_text);
}

TEST(OptionEnds, OfEncodingsTrain) {
  for (const EncodingEntry* entry : encoding_registry()) {
    const std::string prefix = formatted("pe.{}.", entry->name);
    std::vector<std::string> choices;
    for (const OptionInfo& info : list_options(*entry->make_options())) {
      for (const std::string& value : info.allowed) choices.push_back(formatted("{}{}={}", prefix, info.name, value));
    }
    expect_ends("flip-flop", entry->name, prefix, EndsOf(*entry->make_options()).all, short_text, choices);
  }
}

TEST(OptionEnds, OfTasksTrain) {
  for (const TaskEntry* entry : task_registry()) {
    if (entry->reads_files) continue;
    expect_ends(entry->name, "none", "task.", EndsOf(*entry->make_options()).all, "model.layers=1");
  }
}

// Formulas with head widths in their exponents, and norms over a head.
TEST(OptionEnds, OfHeadWidthsTrain) {
  for (const EncodingEntry* entry : encoding_registry()) {
    for (const std::string width : {"1", "2"}) {
      SCOPED_TRACE(formatted("{}, head-width {}", entry->name, width));
      const bool fine = is_fine(tiny("flip-flop", entry->name, short_text + " model.head-width=" + width),
                                {"even number of dims", "even head width", "a norm over a head width of 1 "});
      EXPECT_TRUE(fine || width == "1");
    }
  }
}

// The smallest attention masks.
TEST(OptionEnds, OfWindowsTrain) {
  const std::vector<std::string> others{"chunk=1", "window=1,first=1", "chunk=1,first=1", "window=2"};
  std::size_t n = 0;
  for (const EncodingEntry* entry : encoding_registry()) {
    for (const std::string& sight : {std::string("window=1"), others[n++ % others.size()]}) {
      const std::string text = formatted("{}[{}]", entry->name, sight);
      SCOPED_TRACE(text);
      const bool sees_itself_only = sight == "window=1" || sight == "chunk=1";
      const bool refused = sees_itself_only && entry->name == std::string("stick-breaking");
      EXPECT_EQ(is_fine(tiny("flip-flop", text, short_text), {sight}), !refused);
    }
  }
}

TEST(OptionEnds, WhatSeesItselfOnlyMustAttendToItself) {
  const auto refused = [](const std::string& text, const std::string& more = "") {
    return testing::error_of([&] {
      const RunConfig config = tiny("flip-flop", text, short_text + more);
      config.make_model(*config.make_task());
    });
  };
  for (const std::string text : {"0:none,1:stick-breaking[chunk=1]", "none@0,stick-breaking[window=1]@1"}) {
    EXPECT_TRUE(contains(refused(text), "stick-breaking") && contains(refused(text), "every weight is 0")) << text;
  }
  EXPECT_EQ(refused("stick-breaking[window=1,first=1]"), "");
  EXPECT_EQ(refused("stick-breaking[window=1]", " pe.attend-current=true"), "");
}

TEST(OptionEnds, OfSamplingDrawSomeToken) {
  SamplingOptions options;
  const std::vector<double> logits{-1e4, 3, 3.5, 0};
  for (const Ends& option : EndsOf(options).all) {
    for (const std::string& value : option.accepted) {
      SamplingOptions changed;
      set_option(changed, "generate", option.name, value);
      for (const double uniform : {0.0, 0.5, 1 - 0x1p-53}) {
        const Sampled sampled = sample(logits, changed, uniform);
        EXPECT_TRUE(0 <= sampled.id && sampled.id < 4) << option.name << " = " << value;
        EXPECT_TRUE(std::isfinite(sampled.log_probability)) << option.name << " = " << value;
      }
    }
    for (const std::string& value : option.refused) {
      EXPECT_THROW(set_option(options, "generate", option.name, value), Error) << option.name << " = " << value;
    }
  }
}

// Numbers that the rule divides by, or that would leave nothing of a parameter.
TEST(OptionEnds, OfOptimisersAreOpenWhereTheFormulaNeedsIt) {
  const auto error_of = [](const std::string& settings) {
    return testing::error_of([&] { tiny("flip-flop", "none", short_text + " " + settings).validate(); });
  };
  for (const std::string name : {"beta1", "beta2"}) {
    EXPECT_EQ(error_of("optimiser." + name + "=1"), "[optimiser] " + name + " must be in [0, 1), got '1'");
  }
  EXPECT_EQ(error_of("optimiser.eps=0"), "[optimiser] eps must be 1e-20 to 1, got '0'");
  EXPECT_EQ(error_of("optimiser.name=sgd optimiser.momentum=1"), "[optimiser] momentum must be in [0, 1), got '1'");
  const std::string decay = "optimiser.lr=0.5 optimiser.weight-decay=";
  EXPECT_TRUE(contains(error_of(decay + "2"), "weight-decay 2 with lr 0.5 takes 1 of a parameter"));
  EXPECT_EQ(error_of(decay + "2 optimiser.name=adam"), "");
  EXPECT_EQ(error_of(decay + "1.9"), "");
  // Options that C++ code filled in.
  OptimizerOptions options;
  options.lr = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Optimizer::make(options, {}), Error);
}

}  // namespace tally::option_ends_test
