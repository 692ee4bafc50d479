// Results whose intermediates are computed twice instead of kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// f(inputs), without what its operations keep for backward: backward computes it again from the inputs, which costs
// f's time once more and its memory only then (Chen et al. 2016, arXiv 1604.06174). All tensors that f reads and that
// take gradients must be among the inputs, f gives the same bits each time, and no result is an input itself. name: a
// string literal, for errors and profiles. Where nothing takes gradients this is f(inputs).
using Recomputed = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs, Recomputed f);

// The same in parts, so that what f needs beside its results is there for one part at a time: all inputs have `size`
// elements along the axis, of which f takes any multiple of `step` (and what is left over at the end) by themselves:
// its results for these stand one after the other along the same axis. `numbers` of an input are about what a part
// has; a smaller input is one part.
struct Parts {
  int axis;
  std::int64_t step;
  std::int64_t numbers = std::int64_t{1} << 21;
};
std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs, const Parts& parts,
                               Recomputed f);

}  // namespace tally
