// y[j] = exp(x[j]) / sum_k exp(x[k]) over the last axis; in the causal form row i has its sum over k <= i only.
// Only the result is saved for backward:  d_x[j] = y[j] (d_y[j] - sum_k d_y[k] y[k]).
#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {
namespace {

Tensor softmax(std::string_view name, const Tensor& x, bool causal) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).softmax(y.view(), x.view(), causal);
  record(name, y, {x}, [causal, saved = save_activation(name, y)](const Tensor& d_y, Gradients& d) {
    const Tensor d_x = Tensor::empty(d_y.shape(), d_y.dtype(), d_y.device());
    kernels(d_y.device()).softmax_backward(d_x.view(), d_y.view(), saved.get().view(), causal);
    d.set(0, d_x);
  });
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x) {
  const ProfileScope scope("softmax");
  check_floating("softmax", x);
  check_rank("softmax", x, 1, "[..., N]");
  return softmax("softmax", x, false);
}

Tensor causal_softmax(const Tensor& x) {
  const ProfileScope scope("causal_softmax");
  check_floating("causal_softmax", x);
  check_square("causal_softmax", x);
  return softmax("causal_softmax", x, true);
}

}  // namespace tally
