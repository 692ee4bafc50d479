// Optimisers: the part that all have in common. An update rule is one file in nn/optim/, found by the build.
//   OptimizerOptions options;
//   options.schedule = "cosine";
//   const auto optimizer = Optimizer::make(options, model, /*steps=*/1000);
//   for (...) {
//     cross_entropy(model.forward(x), targets).backward();
//     optimizer->step();
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/module.hpp"
#include "nn/options.hpp"

namespace tally {

// Options that every update rule has, and the options of the chosen rule.
struct OptimizerOptions final : OptionsOf<OptimizerOptions> {
  std::string name = "adamw";
  double lr = 1e-3;
  double weight_decay = 0;
  // all
  // matrices: parameters of rank 2 or more, embeddings and encoding tables included (nanoGPT)
  // linear: weights of linear layers, without embeddings, norms and encoding tables (minGPT, OLMo 2)
  std::string decay = "all";
  double clip = 0;                        // gradient norm; 0 for none
  std::string schedule = "constant";      // constant, linear, cosine, wsd, inverse-root (nn/schedule.cpp)
  double lr_floor = 0;                    // of the learning rate, as a fraction of its peak
  std::int64_t warmup = 0;                // steps
  double cooldown = 0;                    // share of the steps, for wsd and inverse-root; 0 for the default
  std::string cooldown_shape = "linear";  // linear, 1-sqrt
  std::string lr_scale;  // "pe.*=10": for the parameters that match a pattern (nn/parameter_choice.hpp)

  void visit(OptionVisitor& visitor) override;
  // Throws Error for values out of range, and if weight decay would reduce a parameter to nothing in one step.
  void validate() const override;

  // As set_option, but options of other update rules are accepted at their defaults and otherwise refused, because they
  // have no effect.
  void set(std::string_view option, std::string_view text);
  // Options of the other update rules.
  std::vector<OptionInfo> others() const;
  // A copy of the options of rule `name`. Options that the previous rule had under the same name keep their values.
  std::unique_ptr<Options> rule() const;

 private:
  std::string rule_name_;
  std::shared_ptr<Options> rule_;  // shared by copies until one is visited; null: defaults
};

// Learning rate of step n = 1 .. steps; the formulas are in nn/schedule.cpp.
double learning_rate(const OptimizerOptions& options, std::int64_t n, std::int64_t steps);
// The number of steps at the end of a run over which wsd and inverse-root fall to the floor; 0 without a cooldown.
std::int64_t cooldown_steps(const OptimizerOptions& options, std::int64_t steps);

class Optimizer {
 public:
  // Throws Error for an unknown name, and unless parameters are dense leaves of one type and device.
  // steps: the length of the training, for step() with a schedule that depends on it.
  static std::unique_ptr<Optimizer> make(const OptimizerOptions& options, NamedTensors parameters,
                                         std::int64_t steps = 0);
  // The same for all parameters of a model that take gradients. step() then also calls model.project_parameters(). The
  // model must outlive the optimiser.
  static std::unique_ptr<Optimizer> make(const OptimizerOptions& options, Module& model, std::int64_t steps = 0);
  virtual ~Optimizer() = default;
  const OptimizerOptions& options() const { return options_; }

  // The next update from the gradients: follows the schedule, clips, and clears the gradients. Returns the norm of all
  // gradients together before clipping. If it is not finite, no parameter changes. Parameters without a gradient are
  // not changed either.
  double step();
  // The number of updates so far; set it after loading the state of an interrupted training.
  std::int64_t count() const { return count_; }
  void set_count(std::int64_t count) { count_ = count; }

  // The same in parts, for steps that are captured or distributed over processes. The last two can be captured
  // (core/device/graph.hpp). The first part returns the values that change from step to step: [parameters, row] f64 on
  // the host, beginning with the scale of the gradients.
  Tensor hyperparameters(std::int64_t n, double lr, double gradient_scale = 1) const;
  // Then the scale, with the hyperparameters on the parameters' device and in their type. Inputs are the squared norms
  // of the gradients, squares [parameters] f64 (0 without a gradient), and the loss [1]. Gradients are scaled to a norm
  // of at most options().clip (0: any); there is no update if any of these numbers is not finite.
  void clip(const Tensor& hyperparameters, const Tensor& squares, const Tensor& loss) const;
  // Then the update.
  void update(const Tensor& hyperparameters);

  // Whether each element of a parameter is updated only from its own gradient and state, so that parts of parameters
  // can be updated as separate parameters.
  virtual bool elementwise() const { return false; }

  // State by name ("blocks.0.attention.query.weight.m"), for checkpoints; the tensors share their elements.
  NamedTensors state() const;
  // Names of the state tensors of a parameter: "m", "v".
  const std::vector<std::string>& state_names() const { return state_names_; }

 protected:
  // The numbers that determine one parameter's update.
  struct Numbers {
    std::int64_t step;  // from 1
    double lr, weight_decay, gradient_scale;
  };
  // One parameter with the tensors that its update reads and changes; gradient and state are dense and have its shape.
  struct Update {
    Tensor parameter, gradient, row;  // row: its hyperparameters
    std::vector<Tensor> state;        // in the order of their names

    // For rules composed of operations instead of a kernel: number n of the row, rank 0, and a function that stores a
    // new value, unless the scale of the gradients is NaN.
    Tensor number(std::int64_t n) const { return row.detached_select(0, n); }
    void assign(Tensor target, const Tensor& value) const;
  };

  // state: names of the tensors kept for each parameter, 0 at the start.
  Optimizer(const OptimizerOptions& options, NamedTensors parameters, std::vector<std::string> state = {});
  // The row that the kernel reads for one parameter (core/hyperparameters.hpp), in double, the gradients' scale first.
  virtual std::vector<double> row(const Numbers& numbers) const = 0;
  // Changes parameters and state in place; does nothing if the scale in the row is NaN.
  virtual void apply(const std::vector<Update>& updates) const = 0;

 private:
  OptimizerOptions options_;
  NamedTensors parameters_;
  Module* model_ = nullptr;
  std::int64_t steps_ = 0, count_ = 0;
  std::vector<double> lr_factors_;  // one per parameter
  std::vector<std::string> state_names_;
  std::vector<std::vector<Tensor>> state_;  // one per parameter
};

struct OptimizerEntry {
  std::string name;
  std::string summary;  // one line
  std::unique_ptr<Options> (*make_options)();
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options, const Options& own, NamedTensors parameters);
};

// All update rules, by name. Generated by the build.
std::span<const OptimizerEntry* const> optimizer_registry();

// Closing line of a rule's file, outside any namespace:
//   TALLY_OPTIMIZER(sgd, SgdOptions, Sgd, "summary");
// OptimizerType needs a constructor (const OptimizerOptions&, const OptionsType&, NamedTensors).
#define TALLY_OPTIMIZER(stem, OptionsType, OptimizerType, summary_)                                                 \
  namespace tally::registry {                                                                                       \
  const OptimizerEntry& optimizer_##stem() {                                                                        \
    static const OptimizerEntry entry{name_from_stem(#stem), summary_,                                              \
                                      []() -> std::unique_ptr<Options> { return std::make_unique<OptionsType>(); }, \
                                      [](const OptimizerOptions& options, const Options& own,                       \
                                         NamedTensors parameters) -> std::unique_ptr<Optimizer> {                   \
                                        return std::make_unique<OptimizerType>(                                     \
                                            options, dynamic_cast<const OptionsType&>(own), std::move(parameters)); \
                                      }};                                                                           \
    return entry;                                                                                                   \
  }                                                                                                                 \
  }                                                                                                                 \
  static_assert(true)

// Writes the sum of squares of each gradient, in fixed order, to squares [parameters] f64 on the parameters' device: 0
// for a parameter without a gradient.
void squared_gradients(const Tensor& squares, const NamedTensors& parameters);
// The norm of all gradients together, from their squared norms on the host.
double gradient_norm(const std::vector<double>& squares);

}  // namespace tally
