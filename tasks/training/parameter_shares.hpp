// Splits a model's parameters over ranks, so that each rank stores the optimiser state of only one share: stage 1 of
// ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054, section 5.1). All ranks have all parameters and all gradients. Each
// rank updates the rows of its share, and receives the other rows from the other ranks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/distributed/gradient_reducer.hpp"
#include "core/distributed/process_group.hpp"
#include "nn/module.hpp"

namespace tally {

// The optimiser state that each rank stores: all of it, or its share.
enum class OptimizerState { whole, split };

class ParameterShares {
 public:
  // parameters: leaves that take gradients, the same on all ranks. Rows are along the first axis, and the rows of a
  // share are contiguous. Shares differ in size by less than one row of the parameter in which one of them ends.
  ParameterShares(NamedTensors parameters, const ProcessGroup& ranks);

  // The rows of each parameter in this rank's share, possibly none, under the parameter's name. They are leaves that
  // share the parameters' elements. An optimiser of them is equivalent to an optimiser of all parameters if it updates
  // each number independently (Optimizer::elementwise).
  const NamedTensors& own() const { return own_; }
  // Before an update: moves the gradients of this share from the parameters to own(). The parameters then have no
  // gradients.
  void take_gradients() const;
  // After an update: all ranks receive all parameters. exchange: null for a single process.
  void share_parameters(GradientReducer* exchange) const;

  // Gathers the optimiser state of own(), "<parameter>.<state>". The first rank gets whole tensors on the host, the
  // others nothing. All ranks must call it.
  NamedTensors whole(const NamedTensors& state) const;
  // The reverse: the rows of this share of whole stored tensors.
  std::vector<StoredTensor> own_rows(std::vector<StoredTensor> whole) const;

 private:
  // The rows of parameter i that belong to `rank`.
  Tensor rows_of(const Tensor& whole, std::size_t i, std::int64_t rank) const;
  // The index of the parameter in "<parameter>.<state>"; the number of parameters if it is none of them.
  std::size_t index_of(std::string_view state) const;

  NamedTensors parameters_;
  const ProcessGroup& ranks_;
  std::vector<std::vector<std::int64_t>> bounds_;  // for each parameter: the first row of each rank, and the end
  NamedTensors own_;
};

}  // namespace tally
