// Backward that says which gradients are complete while it goes on, so that they can be sent somewhere meanwhile.
#pragma once

#include <functional>

#include "autograd/node.hpp"

namespace tally {

// As backward(loss); `complete` is called with each leaf as soon as nothing more will be added to its gradient in this
// pass, and may take that gradient.
void backward(const Tensor& loss, const std::function<void(AutogradData& leaf)>& complete);

}  // namespace tally
