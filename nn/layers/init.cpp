#include "nn/layers/init.hpp"

#include <algorithm>
#include <cmath>

#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

constexpr double gpt2_deviation = 0.02;

double inverse_sqrt(std::int64_t n) { return 1.0 / std::sqrt(static_cast<double>(n)); }

// The standard deviation of the token embedding with fan_in.
double tied_deviation(std::int64_t width, Tied tied) {
  if (tied == Tied::no) return 1;
  const double of_projection = inverse_sqrt(width);
  return tied == Tied::yes ? of_projection : std::min(of_projection, 4 / static_cast<double>(width));
}

}  // namespace

StartValues start_values_from_text(std::string_view text) {
  if (text == "gpt2") return StartValues::gpt2;
  if (text == "fan-in") return StartValues::fan_in;
  if (text == "authors") return StartValues::authors;
  fail("init", "start values are gpt2, fan-in or authors, not '{}'", text);
}

Initializer Initializer::at(std::string_view name) const {
  Initializer child = *this;
  child.prefix_ = formatted("{}{}.", prefix_, name);
  return child;
}

Initializer Initializer::with_source(ParameterSource source) const {
  Initializer copy = *this;
  copy.source_ = std::move(source);
  return copy;
}

std::string Initializer::path(std::string_view name) const { return formatted("{}{}", prefix_, name); }

Tensor Initializer::make(std::string_view name, const Shape& shape, const Fill& fill) const {
  if (source_) return source_(path(name), shape, fill);
  if (fill.kind == Fill::Kind::list) return Tensor::from(fill.values, shape, device_).to(dtype_);
  if (fill.kind == Fill::Kind::constant) return Tensor::full(shape, fill.a, dtype_, device_);
  // On the model's device: every device draws the same bits.
  Tensor tensor = Tensor::empty(shape, dtype_, device_);
  const RandomStream stream{seed_, stream_of(path(name)), 0};
  if (fill.kind == Fill::Kind::normal) {
    kernels(device_).random_normal(tensor.view(), stream, fill.a, fill.b);
  } else {
    kernels(device_).random_uniform(tensor.view(), stream, fill.a, fill.b);
  }
  return tensor;
}

Fill Initializer::linear_weight(std::int64_t in, double gain) const {
  switch (start_) {
    case StartValues::gpt2: return Fill::normal(gain * gpt2_deviation);
    case StartValues::fan_in: return Fill::normal(gain * inverse_sqrt(in));
    case StartValues::authors: break;
  }
  return Fill::uniform(-inverse_sqrt(in), inverse_sqrt(in));
}

Fill Initializer::linear_bias(std::int64_t in) const {
  if (start_ == StartValues::authors) return Fill::uniform(-inverse_sqrt(in), inverse_sqrt(in));
  return Fill::constant(0);
}

Fill Initializer::token_embedding(std::int64_t width, Tied tied) const {
  switch (start_) {
    case StartValues::gpt2: return Fill::normal(gpt2_deviation);
    case StartValues::fan_in: return Fill::normal(tied_deviation(width, tied));
    case StartValues::authors: break;
  }
  return Fill::normal(inverse_sqrt(width));
}

Fill Initializer::learned_positions(std::int64_t width) const {
  switch (start_) {
    case StartValues::gpt2: return Fill::normal(gpt2_deviation);
    case StartValues::fan_in: return Fill::normal(0.1);
    case StartValues::authors: break;
  }
  return Fill::normal(inverse_sqrt(width));
}

}  // namespace tally
