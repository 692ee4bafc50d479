// Running sums over the last axis. The adjoint of a sum over k <= j is a sum over k >= j, and the reverse; within the
// causal triangle too.
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {
namespace {

Tensor running_sum(std::string_view name, const Tensor& x, bool reverse, bool causal) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).cumsum(y.view(), x.view(), reverse, causal);
  record(name, y, {x}, [reverse, causal](const Tensor& d_y, Gradients& d) {
    const Tensor d_x = Tensor::empty(d_y.shape(), d_y.dtype(), d_y.device());
    kernels(d_y.device()).cumsum(d_x.view(), d_y.view(), !reverse, causal);
    d.set(0, d_x);
  });
  return y;
}

}  // namespace

Tensor cumsum(const Tensor& x, bool reverse) {
  const ProfileScope scope("cumsum");
  check_floating("cumsum", x);
  check_rank("cumsum", x, 1, "[..., N]");
  return running_sum("cumsum", x, reverse, false);
}

Tensor causal_suffix_sum(const Tensor& x) {
  const ProfileScope scope("causal_suffix_sum");
  check_floating("causal_suffix_sum", x);
  check_square("causal_suffix_sum", x);
  return running_sum("causal_suffix_sum", x, true, true);
}

}  // namespace tally
