// The small transformer that commands look at an encoding with: two layers, heads of width 4, parameters off their
// start values, since a table of zeros would hide what comes after it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/transformer.hpp"

namespace tally {

// An encoding with some of its options.
struct EncodingVariant {
  EncodingChoice choice;
  std::string label;  // "cope gates=values"
  // The one that was changed, "cope.gates", and to what; empty for none.
  std::string option = {}, value = {};
};

// The choice as it is; then, one option changed at a time, each other value of a choice or a flag, 2 for whole numbers
// and twice the value for others, but for what the options or a model of 6 tokens refuse. Those that are `given`
// ("cope.gates") keep their values, which all labels name. Throws Error for an encoding that there is no model of.
std::vector<EncodingVariant> variants_of(const EncodingChoice& usual, const std::vector<std::string>& given = {});

struct EncodingModelOptions {
  std::int64_t length = 6;  // T_max of learned tables
  DType dtype = DType::f64;
  Device device = default_device();
  std::string attention = "tiled";
};

// The parameters are the same numbers for any type, device and form of attention.
std::unique_ptr<Transformer> encoding_model(const EncodingChoice& choice, const EncodingModelOptions& options = {});

// Tokens i32 [batch, length] of encoding_model, the same in every call.
Tensor encoding_tokens(std::int64_t length, Device device = default_device(), std::int64_t batch = 1);

// Loss of encoding_model over 6 tokens as a function of its parameters.
class LossOfParameters {
 public:
  explicit LossOfParameters(const EncodingChoice& choice);
  // Those of the model, in the order in which the loss takes them.
  const std::vector<Tensor>& parameters() const { return values_; }
  // Whether the gradients follow a rule of their own and are no derivatives.
  bool exempt() const { return exempt_; }
  Tensor operator()(const std::vector<Tensor>& parameters) const;

 private:
  const EncodingChoice& choice_;
  std::vector<Tensor> values_;
  std::map<std::string, std::size_t> indices_;  // of each parameter
  bool exempt_ = false;
};

}  // namespace tally
