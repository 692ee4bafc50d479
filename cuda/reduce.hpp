// Sums of what the threads of other kernels have left.
#pragma once

#include "core/view.hpp"
#include "cuda/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// y, floating, = the sum of x, f64, both of any strides, over the axes along which y has size 1; in an order that
// the shape alone decides.
void sum_doubles(const View& y, const View& x);

}  // namespace tally::TALLY_CUDA_NAMESPACE
