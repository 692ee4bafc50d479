// The numbers that optimisers' kernels read, in addition to the tensors.
#pragma once

#include <vector>

#include "core/hyperparameters.hpp"
#include "core/tensor.hpp"

namespace tally::testing {

// A row of the type and on the device of a parameter.
inline Tensor hyperparameters_for(const Tensor& parameter, const std::vector<double>& values) {
  Tensor row = Tensor::empty({static_cast<std::int64_t>(values.size())}, parameter.dtype(), parameter.device());
  row.copy_from(Tensor::from(values, row.shape()));
  return row;
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
