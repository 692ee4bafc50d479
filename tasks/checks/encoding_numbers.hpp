// What the small model of an encoding (tasks/checks/encoding_model.hpp) computes, as numbers to compare.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tasks/checks/encoding_model.hpp"

namespace tally {

using Numbers = std::vector<double>;

Numbers numbers_of(const Tensor& x);
// Of their magnitudes; infinite where one of them is no number.
double largest(const Numbers& x);
// The same of their differences; infinite where there is not the same number of them.
double largest_difference(const Numbers& x, const Numbers& y);
std::string short_text(double x);  // "1.2e-09"

// More than a tile of rows and of keys, on the CPU and on a GPU; and what the CPU computes in a moment where it
// executes kernels of a GPU.
inline constexpr std::int64_t several_tiles = 150, one_tile = 35;

bool takes(const Transformer& model, std::int64_t length);
// The longest that a model for so long a text takes, up to that.
std::int64_t length_for(const EncodingChoice& choice, std::int64_t wanted);

struct Computed {
  Numbers logits;
  std::vector<std::pair<std::string, Numbers>> gradients;  // by the parameter's path; empty where there is none
};
// Of one pass forward and backward over encoding_tokens.
Computed computed(Transformer& model, std::int64_t length, Device device, std::int64_t batch = 1);

}  // namespace tally
