// Results whose intermediates are recomputed in backward instead of saved.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// f(inputs), without its operations' saved activations: backward recomputes them from the inputs. This costs f's time
// once more, and its memory only during backward (Chen et al. 2016, arXiv 1604.06174). The inputs must include all
// tensors that f reads and that take gradients. f must give the same bits each time, and no result may be an input
// itself. name: a string literal, for errors and profiles. If no input takes gradients, this is f(inputs).
using Recomputed = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs, Recomputed f);

// The same in parts, so that the intermediates of f are in memory for one part at a time. All inputs have the same size
// along the axis. f processes any multiple of `step` elements (and the remainder at the end) independently, and its
// results are concatenated along the same axis. A part has about `numbers` elements of an input; a smaller input is one
// part.
struct Parts {
  int axis;
  std::int64_t step;
  std::int64_t numbers = std::int64_t{1} << 21;
};
std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs, const Parts& parts,
                               Recomputed f);

}  // namespace tally
