// Sums of partial results that other kernels' threads have written.
#pragma once

#include "core/view.hpp"
#include "cuda/runtime/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// y, floating, = the sum of x, f64, both with any strides, over the axes along which y has size 1. The order depends
// only on the shape.
void sum_doubles(const View& y, const View& x);

}  // namespace tally::TALLY_CUDA_NAMESPACE
