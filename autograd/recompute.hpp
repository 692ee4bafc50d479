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

// The same of one result that is made part by part, part n by f(n, what it reads of each input): views that may have
// elements in common with those of other parts. Of backward, too, one part is there at a time.
struct OverlappingParts {
  std::size_t count;
  std::function<Tensor(std::size_t part, std::size_t input, const Tensor& whole)> of_input;
  std::function<Tensor(std::size_t part, const Tensor& whole)> of_result;  // of every element some part makes it
};
using RecomputedPart = std::function<Tensor(std::size_t part, const std::vector<Tensor>& inputs)>;
// `result`, of any strides, with its elements written.
Tensor recomputed(std::string_view name, const std::vector<Tensor>& inputs, const OverlappingParts& parts,
                  Tensor result, RecomputedPart f);

}  // namespace tally
