// The small transformer on which commands examine an encoding: two layers, and heads of width 4. Its parameters are
// moved off their start values, since a table of zeros would hide every later operation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "nn/transformer.hpp"

namespace tally {

// An encoding with some of its options.
struct EncodingVariant {
  EncodingChoice choice;
  std::string label;  // "cope gates=values"
  // The changed option, "cope.gates", and its value; empty unless exactly one was changed.
  std::string option = {}, value = {};
  std::int64_t key_heads = 0;  // shared by the four heads of queries; 0: each head has its own key head
};

// The choice as it is, variants with one option changed, and one with all of them changed. A choice or a flag takes
// each of its other values, and a number takes one other value in its range. Options in `given` ("cope.gates") keep
// their values and appear in all labels. Variants that the encoding refuses are left out. Any other error stays, so
// that a check reports it. Throws Error if the encoding refuses the choice as it is.
std::vector<EncodingVariant> variants_of(const EncodingChoice& usual, const std::vector<std::string>& given = {});
// The choice with shared key heads, with a window, and in a combination with a few standard encodings. A combination
// sets the flags that have an effect only there. `label`: of the choice as it is.
std::vector<EncodingVariant> variants_in_company(const EncodingChoice& usual, const std::string& label);

struct EncodingModelOptions {
  std::int64_t length = 6;  // T_max of learned tables
  DType dtype = DType::f64;
  Device device = default_device();
  std::string attention = "tiled";
  std::int64_t key_heads = 0;  // if above 0, the model has four heads
};

// The parameters have the same values for any type, device and attention form.
std::unique_ptr<Transformer> encoding_model(const EncodingChoice& choice, const EncodingModelOptions& options = {});

// Tokens i32 [batch, length] of encoding_model, the same in every call.
Tensor encoding_tokens(std::int64_t length, Device device = default_device(), std::int64_t batch = 1);

// Compares the derivatives of the loss over 6 tokens by all parameters with central differences. Nothing if the
// gradients follow a custom rule and are not derivatives.
std::optional<GradcheckResult> check_derivatives(const EncodingVariant& variant);

// The results of an encoding's small model (tasks/checks/encoding_model.hpp), as numbers to compare.

using Numbers = std::vector<double>;

Numbers numbers_of(const Tensor& x);
// The largest magnitude; infinite if a value is not a number.
double largest(const Numbers& x);
// The largest magnitude of the differences; infinite if the sizes differ.
double largest_difference(const Numbers& x, const Numbers& y);
std::string short_text(double x);  // "1.2e-09"

// several_tiles: more than one tile of rows and of keys, on the CPU and on a GPU. one_tile: short enough to be fast
// when the CPU executes GPU kernels.
inline constexpr std::int64_t several_tiles = 150, one_tile = 35;

bool takes(const Transformer& model, std::int64_t length);
// The longest text, up to `wanted`, that a model made for `wanted` tokens accepts.
std::int64_t length_for(const EncodingChoice& choice, std::int64_t wanted);

struct Computed {
  Numbers logits;
  std::vector<std::pair<std::string, Numbers>> gradients;  // by parameter path; empty without a gradient
};
// Runs one pass forward and backward over encoding_tokens.
Computed computed(Transformer& model, std::int64_t length, Device device, std::int64_t batch = 1);

}  // namespace tally
