// The results of an encoding's small model (tasks/checks/encoding_model.hpp), as numbers to compare.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tasks/checks/encoding_model.hpp"

namespace tally {

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
