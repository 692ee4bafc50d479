#include "tasks/checks/encoding_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <variant>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

constexpr std::int64_t vocabulary = 5, length_of_loss = 6;

ModelOptions sizes_for(const EncodingChoice& choice, const std::string& attention) {
  ModelOptions options;
  options.layers = std::max<std::int64_t>(2, choice.least_layers());
  options.heads = std::max<std::int64_t>(2, choice.least_heads());
  options.width = 4 * options.heads;
  options.init = "fan-in";
  options.attention = attention;
  return options;
}

// Whether the value is in the option's range.
bool set(EncodingChoice& choice, const std::string& name, const std::string& value) {
  try {
    choice.set_option(name, value);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool can_be_made(const EncodingChoice& choice) {
  try {
    encoding_model(choice)->check_length(length_of_loss);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::vector<EncodingVariant> variants_of(const EncodingChoice& usual, const std::vector<std::string>& given) {
  encoding_model(usual);
  std::string label = usual.text();
  const auto visit_options = [&](bool wants_given, auto&& visit) {
    for (const auto& part : usual.parts) {
      for (const OptionInfo& option : list_options(*part.options)) {
        const std::string name = formatted("{}.{}", part.entry->name, option.name);
        if ((std::ranges::count(given, name) > 0) == wants_given) visit(name, option);
      }
    }
  };
  visit_options(true, [&](const std::string&, const OptionInfo& option) {
    label += formatted(" {}={}", option.name, to_text(option.value));
  });
  std::vector<EncodingVariant> variants;
  variants.push_back({usual.clone(), label});
  visit_options(false, [&](const std::string& name, const OptionInfo& option) {
    std::vector<std::string> values = option.allowed;
    if (std::holds_alternative<bool>(option.value)) values = {"true", "false"};
    if (std::holds_alternative<std::int64_t>(option.value)) values = {"2"};
    if (const double* real = std::get_if<double>(&option.value)) values = {to_text(2 * *real)};
    for (const std::string& value : values) {
      if (value == to_text(option.value)) continue;
      EncodingVariant other{usual.clone(), formatted("{} {}={}", label, option.name, value), name, value};
      // One option's value may require a value of another option.
      if (set(other.choice, name, value) && can_be_made(other.choice)) variants.push_back(std::move(other));
    }
  });
  return variants;
}

std::unique_ptr<Transformer> encoding_model(const EncodingChoice& choice, const EncodingModelOptions& options) {
  const ModelOptions sizes = sizes_for(choice, options.attention);
  // In double precision first, so that f32 values are these values rounded, not other random numbers.
  Transformer exact(sizes, choice, vocabulary, options.length, 1, DType::f64, Device{});
  NamedTensors values = exact.parameters();
  for (auto& [path, parameter] : values) {
    const Tensor noise = Tensor::empty(parameter.shape(), DType::f64, Device{});
    kernels(noise.device()).random_normal(noise.view(), RandomStream{2, stream_of(path), 0}, 0, 0.3);
    parameter.copy_from(add(parameter.detach(), noise));
  }
  exact.project_parameters();
  for (auto& [path, parameter] : values) parameter = parameter.detach().to(options.dtype).to(options.device);
  auto model =
      std::make_unique<Transformer>(sizes, choice, vocabulary, options.length, 1, options.dtype, options.device);
  model->load(values);
  return model;
}

Tensor encoding_tokens(std::int64_t length, Device device, std::int64_t batch) {
  Rng rng({1, stream_of("tokens of encodings"), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < batch * length; ++n) ids.push_back(static_cast<std::int32_t>(rng.below(vocabulary)));
  return Tensor::from(ids, {batch, length}, device);
}

LossOfParameters::LossOfParameters(const EncodingChoice& choice) : choice_(choice) {
  const auto model = encoding_model(choice, {.length = length_of_loss});
  for (const auto& [path, parameter] : model->parameters()) {
    indices_[path] = values_.size();
    values_.push_back(parameter.detach());
  }
  exempt_ = model->straight_through();
}

Tensor LossOfParameters::operator()(const std::vector<Tensor>& parameters) const {
  const auto given = [&](const std::string& path, const Shape&, const Fill&) { return parameters[indices_.at(path)]; };
  const Device device = parameters.front().device();
  const ModelOptions sizes = sizes_for(choice_, "tiled");
  const Initializer start(1, start_values_from_text(sizes.init), DType::f64, device);
  Transformer model(sizes, choice_, vocabulary, length_of_loss, start.with_source(given));
  const Tensor tokens = encoding_tokens(length_of_loss, device);
  return cross_entropy(model.forward(tokens), tokens, Tensor::full(tokens.shape(), 1, DType::boolean, device));
}

Numbers numbers_of(const Tensor& x) { return x.to(Device{}).to(DType::f64).to_vector<double>(); }

double largest(const Numbers& x) {
  double most = 0;
  for (const double v : x) most = std::isnan(v) ? std::numeric_limits<double>::infinity() : std::max(most, std::abs(v));
  return most;
}

double largest_difference(const Numbers& x, const Numbers& y) {
  if (x.size() != y.size()) return std::numeric_limits<double>::infinity();
  Numbers differences;
  for (std::size_t n = 0; n < x.size(); ++n) differences.push_back(x[n] - y[n]);
  return largest(differences);
}

std::string short_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", x);
  return text;
}

bool takes(const Transformer& model, std::int64_t length) {
  try {
    model.check_length(length);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::int64_t length_for(const EncodingChoice& choice, std::int64_t wanted) {
  const auto model = encoding_model(choice, {.length = wanted});
  std::int64_t length = wanted;
  while (length > 2 && !takes(*model, length)) --length;
  return length;
}

Computed computed(Transformer& model, std::int64_t length, Device device, std::int64_t batch) {
  const Tensor tokens = encoding_tokens(length, device, batch);
  const Tensor logits = model.forward(tokens);
  backward(cross_entropy(logits, tokens, Tensor::full(tokens.shape(), 1, DType::boolean, device)));
  Computed result{numbers_of(logits), {}};
  for (const auto& [path, parameter] : model.parameters()) {
    const Tensor slope = gradient(parameter);
    result.gradients.emplace_back(path, slope.defined() ? numbers_of(slope) : Numbers());
  }
  return result;
}

}  // namespace tally
