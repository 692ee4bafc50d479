// Initial values. Every parameter draws from a separate random stream, keyed by its path, so that its initial values do
// not depend on which other parameters exist.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// gpt2: N(0, 0.02^2) throughout. fan_in: linear N(0, 1/in), token embedding N(0, 1), learned positions N(0, 0.1^2).
// authors: linear U(+-1/sqrt(in)) with bias, embeddings N(0, 1/D) (the released counting code).
enum class StartValues { gpt2, fan_in, authors };

// The other role of the token embedding: none, or the output projection too. With fan_in a tied embedding is
// initialised like a projection, N(0, 1/D), so that logits are about 1 and the loss is about ln V (the shared matrix of
// Vaswani et al. 2017, arXiv 1706.03762, section 3.4, in tensor2tensor; SmolLM2, arXiv 2502.02737). If norms follow the
// residuals, they pass the embedding to the output, and the logit of the token itself is D times the standard
// deviation. The embedding is then N(0, (4/D)^2) if that is less (it falls with 1/D: the readout of Yang et al. 2022,
// arXiv 2203.03466, table 3).
enum class Tied { no, yes, after_norms };
StartValues start_values_from_text(std::string_view text);  // "gpt2", "fan-in", "authors"

// The distribution of one tensor.
struct Fill {
  enum class Kind { constant, normal, uniform, list } kind = Kind::constant;
  double a = 0, b = 0;         // value; mean and standard deviation; low and high
  std::vector<double> values;  // of a list: all elements
  static Fill constant(double value) { return {Kind::constant, value, 0, {}}; }
  static Fill normal(double deviation) { return {Kind::normal, 0, deviation, {}}; }
  static Fill uniform(double low, double high) { return {Kind::uniform, low, high, {}}; }
  static Fill list(std::vector<double> values) { return {Kind::list, 0, 0, std::move(values)}; }
};

// An alternative source of parameters: tensors of another model, or tensors without memory.
using ParameterSource = std::function<Tensor(const std::string& path, const Shape& shape, const Fill& fill)>;

class Initializer {
 public:
  explicit Initializer(std::uint64_t seed, StartValues start = StartValues::fan_in, DType dtype = DType::f32,
                       Device device = {})
      : seed_(seed), start_(start), dtype_(dtype), device_(device) {}

  // The same with all parameters from `source`.
  Initializer with_source(ParameterSource source) const;
  bool has_source() const { return static_cast<bool>(source_); }
  // For a child module: its names get this prefix.
  Initializer at(std::string_view name) const;
  // "blocks.0.attention.query.weight": the name with the prefixes.
  std::string path(std::string_view name) const;
  Tensor make(std::string_view name, const Shape& shape, const Fill& fill) const;

  StartValues start() const { return start_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  // Weight and bias of a linear layer with `in` inputs; `gain` multiplies the weight (1/sqrt(2 layers) for residual
  // projections with gpt2 and fan_in).
  Fill linear_weight(std::int64_t in, double gain = 1) const;
  Fill linear_bias(std::int64_t in) const;
  Fill token_embedding(std::int64_t width, Tied tied) const;
  Fill learned_positions(std::int64_t width) const;

 private:
  std::uint64_t seed_;
  StartValues start_;
  DType dtype_;
  Device device_;
  std::string prefix_;
  ParameterSource source_;  // empty: random streams
};

}  // namespace tally
