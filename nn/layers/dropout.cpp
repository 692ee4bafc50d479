#include "nn/layers/dropout.hpp"

#include <algorithm>

#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {

Dropout::Dropout(const Initializer& start, std::string_view name, double rate)
    : stream_(stream_of(formatted("dropout/{}", start.path(name)))), rate_(rate) {}

Tensor Dropout::operator()(const Tensor& x, const ForwardContext& pass) const {
  return dropout(x, rate(pass), stream(pass, x.numel() / std::max<std::int64_t>(1, x.size(0))));
}

}  // namespace tally
