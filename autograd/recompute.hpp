// Results whose intermediates are computed twice instead of kept.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// f(inputs), without what its operations keep for backward: backward computes it again from the inputs, which costs
// f's time once more and its memory only then (Chen et al. 2016, arXiv 1604.06174). All tensors that f reads and that
// take gradients must be among the inputs, f gives the same bits each time, and no result is an input itself. name: a
// string literal, for errors and profiles. Where nothing takes gradients this is f(inputs).
std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs,
                               std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f);

}  // namespace tally
