// Exercise 6: write this function.
#include <tally/tally.hpp>

// The weights of attention from scores [B, T, T]: query i attends to the keys i - width + 1 ... i only.
tally::Tensor window_weights(const tally::Tensor& scores, std::int64_t width) { return scores; }
