// Optimisers: what all have in common. An update rule is one file in nn/optim/, found by the build.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/module.hpp"
#include "nn/options.hpp"

namespace tally {

// Options that every update rule understands, and those of the chosen one.
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
  double lr_floor = 0;                    // of the learning rate, as a part of its peak
  std::int64_t warmup = 0;                // steps
  double cooldown = 0;                    // share of the steps, of wsd and inverse-root; 0 for the usual one
  std::string cooldown_shape = "linear";  // linear, 1-sqrt
  std::string lr_scale;                   // "pe.*=10": of the parameters that a pattern names (nn/parameter_choice.hpp)

  void visit(OptionVisitor& visitor) override;
  // Throws Error for values out of range, and where a step's weight decay would leave nothing of a parameter.
  void validate() const override;

  // As set_option, which does not know the options of other update rules: these are accepted at their defaults and
  // refused otherwise, because they have no effect.
  void set(std::string_view option, std::string_view text);
  // Options of the other update rules.
  std::vector<OptionInfo> others() const;
  // A copy of those of the rule `name`. What the rule chosen before had under the same name keeps its value.
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
  // Throws Error for an unknown name and for parameters that are no dense leaves of one type and device.
  static std::unique_ptr<Optimizer> make(const OptimizerOptions& options, NamedTensors parameters);
  virtual ~Optimizer() = default;

  // One update from the gradients; `n` counts from 1. Parameters without a gradient are left alone. Gradients are
  // multiplied by gradient_scale first (clipping).
  void step(std::int64_t n, double lr, double gradient_scale);

  // The same in parts, of which the latter two can be captured (core/graph.hpp):
  // what changes from step to step, [parameters, row] f64 on the host, the scale of the gradients first;
  Tensor hyperparameters(std::int64_t n, double lr, double gradient_scale = 1) const;
  // with these on the parameters' device and of their type: the gradients' squared norms, squares [parameters] f64 (0
  // without a gradient), and the loss [1] decide how gradients are scaled: to a norm of at most `clip` (0: any), and no
  // update where one of them is not finite;
  static void clip(const Tensor& hyperparameters, const Tensor& squares, const Tensor& loss, double clip);
  // the update.
  void update(const Tensor& hyperparameters);

  // Whether each number of a parameter is updated from its own gradient and state alone, so that parts of parameters
  // can be updated as parameters of their own.
  virtual bool elementwise() const { return false; }

  // State by name ("blocks.0.attention.query.weight.m"), for checkpoints; the tensors share their elements.
  NamedTensors state() const;
  // Of each parameter's: "m", "v".
  const std::vector<std::string>& state_names() const { return state_names_; }

 protected:
  // What the numbers of one parameter's update follow from.
  struct Numbers {
    std::int64_t step;  // from 1
    double lr, weight_decay, gradient_scale;
  };
  // One parameter with what its update reads and changes; gradient and state are dense and of the parameter's shape.
  struct Update {
    Tensor parameter, gradient, row;  // row: of hyperparameters
    std::vector<Tensor> state;        // in the order of their names

    // For rules made of operations instead of a kernel: number n of the row, rank 0, and a tensor's new value, which
    // nothing takes where the scale of the gradients is not a number.
    Tensor number(std::int64_t n) const { return row.select_view(0, n); }
    void assign(Tensor target, const Tensor& value) const;
  };

  // state: names of the tensors kept for each parameter, 0 at the start.
  Optimizer(const OptimizerOptions& options, NamedTensors parameters, std::vector<std::string> state = {});
  // What the kernel reads for one parameter (core/hyperparameters.hpp), in double, the gradients' scale first.
  virtual std::vector<double> row(const Numbers& numbers) const = 0;
  // Changes parameters and state in place; nothing where the scale in the row is not a number.
  virtual void apply(const std::vector<Update>& updates) const = 0;

 private:
  OptimizerOptions options_;
  NamedTensors parameters_;
  std::vector<double> lr_factors_;  // of each
  std::vector<std::string> state_names_;
  std::vector<std::vector<Tensor>> state_;  // of each parameter
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

// Writes each gradient's sum of squares, in fixed order, to squares [parameters] f64 on the parameters' device: 0 where
// there is none.
void squared_gradients(const Tensor& squares, const NamedTensors& parameters);

}  // namespace tally
