#include "nn/attention/mask.hpp"

#include <limits>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"

namespace tally {

Tensor mask_tensor(const AttentionMask& mask, std::int64_t length, DType dtype, Device device, std::int64_t first,
                   bool strictly) {
  const NoGrad not_recorded;
  const Tensor index = cumsum(Tensor::full({1, length}, 1.0, dtype, device)) + -1.0;
  const Tensor row = unsqueeze(slice(index, 1, first, length), 2), column = unsqueeze(index, 1);
  const Tensor before = strictly ? less(column, row) : less_equal(column, row);
  if (mask.is_causal_only()) return before;
  std::vector<double> begin;
  for (std::int64_t i = first; i < length; ++i) begin.push_back(static_cast<double>(mask.begin(i)));
  const Tensor own = Tensor::from(begin, {1, length - first, 1}, device).to(dtype);
  const Tensor always = Tensor::full({1}, static_cast<double>(mask.first), dtype, device);
  const Tensor one = Tensor::full({1}, 1.0, dtype, device), zero = Tensor::zeros({1}, dtype, device);
  const Tensor near = where(less_equal(own, column), one, where(less(column, always), one, zero));
  return less(zero, where(before, near, zero));
}

Tensor masked_fill_zero(const Tensor& x, const Tensor& seen) {
  return where(seen, x, Tensor::zeros({1}, x.dtype(), x.device()));
}

Tensor masked_fill_min(const Tensor& x, const Tensor& seen) {
  return where(seen, x, Tensor::full({1}, std::numeric_limits<float>::lowest(), x.dtype(), x.device()));
}

}  // namespace tally
