// Rotation of pairs of dims (RoPE: Su et al. 2021, arXiv 2104.09864, eq. 15): (a, b) -> (a cos - b sin, a sin + b cos).
// d_x is d_y rotated the other way, (a cos + b sin, b cos - a sin): the transposed matrix, so also right where cos and
// sin carry a factor.
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {

Tensor rotate_pairs(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool interleaved) {
  const ProfileScope scope("rotate_pairs");
  check_same_floating("rotate_pairs", x, cosine);
  check_same_floating("rotate_pairs", x, sine);
  check_rank("rotate_pairs", x, 2, "[..., T, d]");
  check(cosine.shape() == sine.shape() && cosine.rank() == 2, "rotate_pairs",
        "cosine and sine need one shape [T, r/2]: got ", cosine.shape(), " and ", sine.shape());
  check(cosine.size(0) == x.size(-2) && 2 * cosine.size(1) <= x.size(-1), "rotate_pairs", "cosine ", cosine.shape(),
        " [T, r/2] does not fit x ", x.shape(), " [..., T, d]: T must be equal and r at most d");
  record_no_derivative("rotate_pairs (cosine, sine)", {cosine, sine});
  const Tensor cosines = cosine.to_dense();
  const Tensor sines = sine.to_dense();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).rotate_pairs(y.view(), x.view(), cosines.view(), sines.view(), interleaved, false);
  record("rotate_pairs", y, {x},
         [interleaved, kept_cosine = Saved("rotate_pairs", cosines), kept_sine = Saved("rotate_pairs", sines)](
             const Tensor& d_y, Gradients& d) {
           const Tensor d_x = Tensor::empty(d_y.shape(), d_y.dtype(), d_y.device());
           kernels(d_y.device())
               .rotate_pairs(d_x.view(), d_y.view(), kept_cosine.get().view(), kept_sine.get().view(), interleaved,
                             true);
           d.set(0, d_x);
         });
  return y;
}

}  // namespace tally
