#include "core/tensor.hpp"

tally::Tensor sliding_windows(const tally::Tensor& x, std::int64_t width) {
  tally::Strides strides;
  strides[0] = strides[1] = x.strides()[0];
  return x.detached_strided({x.size(0) - width + 1, width}, strides, x.offset());
}
