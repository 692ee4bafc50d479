#include "nn/layers/embedding.hpp"

#include "autograd/ops.hpp"

namespace tally {

Embedding::Embedding(const Initializer& start, std::int64_t vocabulary, std::int64_t width, Tied tied)
    : weight_(add_parameter("weight", start.make("weight", {vocabulary, width}, start.token_embedding(width, tied)))) {}

Tensor Embedding::forward(const Tensor& ids) const {
  if (ids.device() == weight_.device()) return embedding(weight_, ids);
  check_ids("embedding", ids, weight_);  // checked here, because the device does not check them
  return embedding(weight_, ids.to(weight_.device()));
}

}  // namespace tally
