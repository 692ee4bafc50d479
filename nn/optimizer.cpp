#include "nn/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/error.hpp"
#include "nn/parameter_choice.hpp"

namespace tally {
namespace {

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const OptimizerEntry* entry : optimizer_registry()) all.push_back(entry->name);
  return all;
}

const OptimizerEntry& find_optimizer(std::string_view name) {
  for (const OptimizerEntry* entry : optimizer_registry()) {
    if (entry->name == name) return *entry;
  }
  const std::vector<std::string_view> known = names();
  fail("optimiser", "there is no '{}'{}", name, did_you_mean_or_known(name, {known.begin(), known.end()}));
}

std::string summaries() {
  std::string text = "update rule:";
  for (const OptimizerEntry* entry : optimizer_registry()) text += formatted(" {}, {};", entry->name, entry->summary);
  return text + " its options are listed when it is named";
}

const OptionInfo* find_option(const std::vector<OptionInfo>& options, std::string_view name) {
  const auto found = std::ranges::find(options, name, &OptionInfo::name);
  return found != options.end() ? &*found : nullptr;
}

// The defined gradients, dense, in the form that kernels take.
struct DenseGradients {
  std::vector<std::size_t> owners;  // indices of their parameters
  std::vector<Tensor> tensors;

  explicit DenseGradients(const NamedTensors& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor d_parameter = gradient(parameters[i].second);
      if (!d_parameter.defined()) continue;
      owners.push_back(i);
      tensors.push_back(d_parameter.to_dense());
    }
  }
};

// Each step subtracts lr decay times a parameter; adam divides that by the gradient's size.
void check_decay(const OptimizerOptions& options, double lr) {
  const double part = options.name == "adam" ? 0 : lr * options.weight_decay;
  check(part < 1, "optimiser",
        "weight-decay {} with lr {} takes {} of a parameter off it in each step, so nothing is left; their product "
        "must be below 1",
        options.weight_decay, lr, part);
}

// what: OptimizerOptions::decay
bool decays(std::string_view what, const NamedTensors::value_type& parameter) {
  const auto& [path, values] = parameter;
  if (what == "linear") return is_linear_weight(path, values.rank());
  return what == "all" || values.rank() >= 2;
}

Tensor row_of(const Tensor& rows, std::size_t i) { return rows.detached_select(0, static_cast<std::int64_t>(i)); }

}  // namespace

void OptimizerOptions::visit(OptionVisitor& visitor) {
  static const std::string help = summaries();
  visitor.choice("name", name, names(), help);
  visitor.real("lr", lr, "peak learning rate", 0);
  rule_ = rule();
  rule_name_ = name;
  rule_->visit(visitor);
  visitor.real("weight-decay", weight_decay, "decoupled in adamw, added to the gradient in adam and sgd", 0, 1e6);
  visitor.choice("decay", decay, {"all", "matrices", "linear"},
                 "parameters with weight decay: all; those of rank 2 or more; or weights of linear layers, without "
                 "embeddings, norms and encoding tables");
  visitor.real("clip", clip, "largest norm of all gradients together; 0: no limit", 0);
  visitor.choice("schedule", schedule, {"constant", "linear", "cosine", "wsd", "inverse-root"},
                 "learning-rate schedule after the warm-up; wsd: constant until the cooldown; inverse-root: "
                 "1/sqrt(step)");
  visitor.real("lr-floor", lr_floor, "final learning rate of every schedule except constant, as a fraction of the peak",
               0, 1);
  visitor.integer("warmup", warmup, "steps of linear warm-up");
  visitor.real("cooldown", cooldown,
               "share of the steps in which wsd and inverse-root fall to the floor at the end; 0: 0.1 (wsd) or none "
               "(inverse-root)",
               0, 1);
  visitor.choice("cooldown-shape", cooldown_shape, {"linear", "1-sqrt"}, "shape of the cooldown");
  visitor.text("lr-scale", lr_scale, "learning-rate factors by parameter name: 'pe.*=10,embedding.*=0.1'");
}

void OptimizerOptions::validate() const {
  check_values(*this, "optimiser");
  check_decay(*this, lr);
}

std::unique_ptr<Options> OptimizerOptions::rule() const {
  if (rule_ != nullptr && rule_name_ == name) return rule_->clone();
  std::unique_ptr<Options> own = find_optimizer(name).make_options();
  if (rule_ == nullptr) return own;
  const std::vector<OptionInfo> known = list_options(*own);
  for (const OptionInfo& before : list_options(*rule_)) {
    if (find_option(known, before.name)) set_option(*own, "optimiser", before.name, to_text(before.value));
  }
  return own;
}

std::vector<OptionInfo> OptimizerOptions::others() const {
  OptimizerOptions copy = *this;
  std::vector<OptionInfo> all = list_options(copy);
  const auto own = static_cast<std::ptrdiff_t>(all.size());
  for (const OptimizerEntry* entry : optimizer_registry()) {
    for (OptionInfo& option : list_options(*entry->make_options())) {
      if (!find_option(all, option.name)) all.push_back(std::move(option));
    }
  }
  return {all.begin() + own, all.end()};
}

void OptimizerOptions::set(std::string_view option, std::string_view text) {
  const std::vector<OptionInfo> foreign = others();
  const OptionInfo* const of_another = find_option(foreign, option);
  if (of_another == nullptr) return set_option(*this, "optimiser", option, text);
  std::string holders;
  for (const OptimizerEntry* entry : optimizer_registry()) {
    const std::unique_ptr<Options> options = entry->make_options();
    const std::vector<OptionInfo> usual = list_options(*options);
    if (!find_option(usual, option)) continue;
    set_option(*options, "optimiser", option, text);
    if (find_option(list_options(*options), option)->value == find_option(usual, option)->value) return;
    holders += formatted("{}{}", holders.empty() ? "" : " and ", entry->name);
  }
  fail("optimiser", "{} = {} has no effect with {}; it is for {}", option, text, name, holders);
}

std::unique_ptr<Optimizer> Optimizer::make(const OptimizerOptions& options, Module& model, std::int64_t steps) {
  NamedTensors parameters = model.parameters();
  std::erase_if(parameters, [](const auto& parameter) { return !requires_grad(parameter.second); });
  std::unique_ptr<Optimizer> optimizer = make(options, std::move(parameters), steps);
  optimizer->model_ = &model;
  return optimizer;
}

std::unique_ptr<Optimizer> Optimizer::make(const OptimizerOptions& options, NamedTensors parameters,
                                           std::int64_t steps) {
  options.validate();
  for (const auto& [path, parameter] : parameters) {
    check(requires_grad(parameter) && parameter.dense(), "optimiser", "{} is not a dense leaf that takes gradients",
          path);
    const Tensor& first = parameters.front().second;
    check(parameter.dtype() == first.dtype() && parameter.device() == first.device(), "optimiser",
          "{} is {} on {}, {} {} on {}", path, parameter.dtype(), parameter.device(), parameters.front().first,
          first.dtype(), first.device());
  }
  std::unique_ptr<Optimizer> optimizer =
      find_optimizer(options.name).make(options, *options.rule(), std::move(parameters));
  optimizer->steps_ = steps;
  return optimizer;
}

Optimizer::Optimizer(const OptimizerOptions& options, NamedTensors parameters, std::vector<std::string> state)
    : options_(options),
      parameters_(std::move(parameters)),
      lr_factors_(factors_of(parameters_, options.lr_scale)),
      state_names_(std::move(state)) {
  for (const double factor : lr_factors_) check_decay(options, options.lr * factor);
  for (const auto& [path, parameter] : parameters_) {
    std::vector<Tensor>& own = state_.emplace_back();
    for (std::size_t s = 0; s < state_names_.size(); ++s) {
      own.push_back(Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device()));
    }
  }
}

void Optimizer::Update::assign(Tensor target, const Tensor& value) const {
  target.copy_from(where(equal(number(0), number(0)), value, target));
}

double Optimizer::step() {
  if (parameters_.empty()) return 0;
  const bool open_ended =
      options_.schedule == "constant" || (options_.schedule == "inverse-root" && options_.cooldown == 0);
  check(steps_ > 0 || open_ended, "optimiser",
        "schedule = {} depends on the number of steps; pass it to Optimizer::make(options, model, steps)",
        options_.schedule);
  const std::int64_t n = count_ + 1;
  const double lr = learning_rate(options_, n, steps_ > 0 ? steps_ : n);
  const Tensor& first = parameters_.front().second;
  const Tensor rows = hyperparameters(n, lr).to(first.dtype()).to(first.device());
  const Tensor squares = Tensor::empty({std::ssize(parameters_)}, DType::f64, first.device());
  squared_gradients(squares, parameters_);
  clip(rows, squares, Tensor::zeros({1}, first.dtype(), first.device()));
  update(rows);
  if (model_ != nullptr) model_->project_parameters();
  for (const auto& [path, parameter] : parameters_) clear_gradient(parameter);
  count_ = n;
  return gradient_norm(squares.to_vector<double>());
}

Tensor Optimizer::hyperparameters(std::int64_t n, double lr, double gradient_scale) const {
  std::vector<double> rows;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const double decay = decays(options_.decay, parameters_[i]) ? options_.weight_decay : 0.0;
    const std::vector<double> own = row({n, lr * lr_factors_[i], decay, gradient_scale});
    rows.insert(rows.end(), own.begin(), own.end());
  }
  const auto count = static_cast<std::int64_t>(parameters_.size());
  return Tensor::from(rows, {count, count > 0 ? std::ssize(rows) / count : 0});
}

void Optimizer::clip(const Tensor& hyperparameters, const Tensor& squares, const Tensor& loss) const {
  if (hyperparameters.numel() == 0) return;
  kernels(hyperparameters.device())
      .clip_scale(hyperparameters.detached_select(1, 0).view(), squares.view(), loss.view(), options_.clip);
}

void Optimizer::update(const Tensor& hyperparameters) {
  const NoGrad only_values;
  const DenseGradients gradients(parameters_);
  if (gradients.owners.empty()) return;
  std::vector<Update> updates;
  for (std::size_t g = 0; g < gradients.owners.size(); ++g) {
    const std::size_t i = gradients.owners[g];
    updates.push_back({parameters_[i].second, gradients.tensors[g], row_of(hyperparameters, i), state_[i]});
    updates.back().parameter.storage()->bump_version();
    for (const Tensor& state : state_[i]) state.storage()->bump_version();
  }
  apply(updates);
}

NamedTensors Optimizer::state() const {
  NamedTensors all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    for (std::size_t s = 0; s < state_names_.size(); ++s) {
      all.emplace_back(formatted("{}.{}", parameters_[i].first, state_names_[s]), state_[i][s]);
    }
  }
  return all;
}

void squared_gradients(const Tensor& squares, const NamedTensors& parameters) {
  const Kernels& on = kernels(squares.device());
  const DenseGradients gradients(parameters);
  if (gradients.owners.size() < parameters.size()) on.fill(squares.view(), 0);
  std::vector<View> results, views;
  for (std::size_t g = 0; g < gradients.owners.size(); ++g) {
    results.push_back(row_of(squares, gradients.owners[g]).view());
    views.push_back(gradients.tensors[g].view());
  }
  const Workspace workspace(on.squared_norm_workspace(views), squares.device());
  on.squared_norm(results, views, workspace.data());
}

double gradient_norm(const std::vector<double>& squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

}  // namespace tally
