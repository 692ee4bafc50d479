// Exercise 1: write this function. The test shows the expected results.
#include "core/tensor.hpp"

// All windows of `width` neighbouring elements of x [n], as rows of a matrix [n - width + 1, width]. It shares the
// memory of x, which may be a view with any stride.
tally::Tensor sliding_windows(const tally::Tensor& x, std::int64_t width) { return x; }
