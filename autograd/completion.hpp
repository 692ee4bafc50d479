// A backward pass that reports each complete gradient at once, so that it can be sent while the pass continues.
#pragma once

#include <functional>

#include "autograd/node.hpp"

namespace tally {

// As backward(loss). `complete` is called with each leaf as soon as nothing more will be added to its gradient in this
// pass; it may take that gradient.
void backward(const Tensor& loss, const std::function<void(AutogradData& leaf)>& complete);

}  // namespace tally
