// Dropout (Srivastava et al. 2014): y = x k / (1 - rate), k = 1 with probability 1 - rate, else 0;  d_x = d_y k / (1 -
// rate). k follows from the random stream and the index of the element, so it is recomputed and not saved.
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {

Tensor dropout(const Tensor& x, double rate, RandomStream stream) {
  check_floating("dropout", x);
  check(rate >= 0 && rate < 1, "dropout", "rate must be at least 0 and below 1, got {}", rate);
  if (rate == 0) return x;
  const ProfileScope scope("dropout");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).dropout(y.view(), x.to_dense().view(), rate, stream);
  record("dropout", y, {x}, [rate, stream](const Tensor& d_y, Gradients& d) {
    const Tensor d_x = Tensor::empty(d_y.shape(), d_y.dtype(), d_y.device());
    kernels(d_y.device()).dropout(d_x.view(), d_y.to_dense().view(), rate, stream);
    d.set(0, d_x);
  });
  return y;
}

}  // namespace tally
