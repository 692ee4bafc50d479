// The parameters of a model shared out over ranks, for an optimiser of which each rank keeps the state of one share
// alone: stage 1 of ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054, section 5.1). All ranks have all parameters and
// all gradients; each updates the rows of its share, and gets those of the others.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/distributed/gradient_reducer.hpp"
#include "core/distributed/process_group.hpp"
#include "nn/module.hpp"

namespace tally {

// What each rank keeps of the optimiser's state: all of it, or its share.
enum class OptimizerState { whole, split };

class ParameterShares {
 public:
  // Leaves that take gradients, the same on all ranks. Rows are along the first axis; those of a share are neighbours,
  // and shares differ in size by less than a row of the parameter in which one of them ends.
  ParameterShares(NamedTensors parameters, const ProcessGroup& ranks);

  // Of each parameter the rows of this rank's share, which may be none, under its name: leaves with the parameters'
  // elements. An optimiser of these does what one of all parameters does, if it treats each number by itself
  // (Optimizer::elementwise).
  const NamedTensors& own() const { return own_; }
  // Before an update: the gradients of the share are those of the parameters, which have none afterwards.
  void take_gradients() const;
  // After it: all ranks get the parameters of all. exchange: null where one process is alone.
  void share_parameters(GradientReducer* exchange) const;

  // Of what an optimiser of own() keeps, "<parameter>.<what>": whole tensors on the host for the first rank, nothing
  // for the others. All call it.
  NamedTensors whole(const NamedTensors& state) const;
  // The other way: of whole stored tensors the rows of this share.
  std::vector<StoredTensor> own_rows(std::vector<StoredTensor> whole) const;

 private:
  // The rows of parameter i that are rank r's.
  Tensor rows_of(const Tensor& whole, std::size_t i, std::int64_t rank) const;
  // The parameter in "<parameter>.<what>"; how many there are where it is none of them.
  std::size_t index_of(std::string_view state) const;

  NamedTensors parameters_;
  const ProcessGroup& ranks_;
  std::vector<std::vector<std::int64_t>> bounds_;  // of each parameter: the first row of each rank, and the end
  NamedTensors own_;
};

}  // namespace tally
