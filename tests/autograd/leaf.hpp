// Leaves in f64 that take gradients, on the default device.
#pragma once

#include <vector>

#include "autograd/node.hpp"

namespace tally::testing {

inline Tensor leaf(const std::vector<double>& values, const Shape& shape) {
  return Tensor::from(values, shape, default_device()).set_requires_grad();
}
inline Tensor leaf(const std::vector<double>& values) { return leaf(values, {std::ssize(values)}); }

inline std::vector<double> gradient_of(const Tensor& x) { return gradient(x).to_vector<double>(); }

}  // namespace tally::testing
