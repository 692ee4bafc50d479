// What the kernels of optimisers read besides the tensors.
#pragma once

#include <vector>

#include "core/tensor.hpp"
#include "core/update_factors.hpp"

namespace tally::testing {

// A row of factors, of the type and on the device of a parameter.
inline Tensor factors_for(const Tensor& parameter, const std::vector<double>& row) {
  Tensor factors = Tensor::empty({static_cast<std::int64_t>(row.size())}, parameter.dtype(), parameter.device());
  factors.copy_from(Tensor::from(row, factors.shape()));
  return factors;
}

// A kernel's list of one tensor.
class Only {
 public:
  explicit Only(const Tensor& tensor) : view_(tensor.view()) {}
  operator Views() const { return {&view_, 1}; }

 private:
  View view_;
};

}  // namespace tally::testing
