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

RunConfig tiny(const std::string& encoding, const std::string& settings) {
  return testing::with(RunConfig::make("flip-flop", encoding),
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

// Every number of these options at each end. An end may contradict another option, and is then refused by name.
void expect_ends(const std::string& encoding, const std::string& prefix, const std::vector<Ends>& options,
                 const std::string& beside) {
  for (const Ends& option : options) {
    const std::string name = prefix + option.name;
    for (const std::string& value : option.accepted) {
      SCOPED_TRACE(formatted("{}, {} = {}", encoding, name, value));
      RunConfig config = tiny(encoding, beside);
      config.set(name, value);
      is_fine(config, {option.name, "[flip-flop]"});
    }
    for (const std::string& value : option.refused) {
      RunConfig config = tiny(encoding, beside);
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
      expect_ends("cope", "optimiser.", EndsOf(options).all,
                  formatted("{} optimiser.name={} optimiser.schedule={}", short_text, entry->name,
                            info.allowed[n++ % info.allowed.size()]));
    }
  }
}

TEST(OptionEnds, OfTheModelTrain) {
  ModelOptions options;
  for (const std::string beside : {"", " model.norm=rms model.tied=true"}) {
    expect_ends("cope", "model.", EndsOf(options).all, short_text + beside);
  }
}

TEST(OptionEnds, OfEncodingsTrain) {
  for (const EncodingEntry* entry : encoding_registry()) {
    expect_ends(entry->name, formatted("pe.{}.", entry->name), EndsOf(*entry->make_options()).all, short_text);
  }
}

// Formulas with head widths in their exponents, and norms over a head.
TEST(OptionEnds, OfHeadWidthsTrain) {
  for (const EncodingEntry* entry : encoding_registry()) {
    for (const std::string width : {"1", "2"}) {
      SCOPED_TRACE(formatted("{}, head-width {}", entry->name, width));
      const bool fine = is_fine(tiny(entry->name, short_text + " model.head-width=" + width),
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
      EXPECT_EQ(is_fine(tiny(text, short_text), {sight}), !refused);
    }
  }
}

}  // namespace tally::option_ends_test
