// Rotation of pairs of dims (RoPE: Su et al. 2021, arXiv 2104.09864, eq. 15): (a, b) -> (a cos - b sin, a sin + b cos).
// d_x is d_y rotated the other way, (a cos + b sin, b cos - a sin): the transposed matrix. So it is also right if cos
// and sin include a factor.
#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {
namespace {

Tensor rotated(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool interleaved, bool inverse) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).rotate_pairs(y.view(), x.view(), cosines.view(), sines.view(), interleaved, inverse);
  return y;
}

// The first, or second, of each pair of x [..., d].
Tensor half_of_pairs(const Tensor& x, std::int64_t pairs, bool interleaved, bool second) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  const int last = shape.rank - 1;
  shape[last] = pairs;
  const std::int64_t step = interleaved ? 1 : pairs, begin = second ? step * strides[last] : 0;
  if (interleaved) strides[last] *= 2;
  return x.detached_strided(shape, strides, x.offset() + begin);
}

}  // namespace

Tensor rotate_pairs(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool interleaved) {
  const ProfileScope scope("rotate_pairs");
  check_same_floating("rotate_pairs", cosine, sine);
  check_matmul_input("rotate_pairs", x, cosine);
  check_rank("rotate_pairs", x, 2, "[..., T, d]");
  check(cosine.shape() == sine.shape() && cosine.rank() == 2, "rotate_pairs",
        "cosine and sine need one shape [T, r/2]: got {} and {}", cosine.shape(), sine.shape());
  check(cosine.size(0) == x.size(-2) && 2 * cosine.size(1) <= x.size(-1), "rotate_pairs",
        "cosine {} [T, r/2] does not fit x {} [..., T, d]: T must be equal and r at most d", cosine.shape(), x.shape());
  record_no_derivative("rotate_pairs (cosine, sine)", {cosine, sine});
  const Tensor cosines = cosine.to_dense(), sines = sine.to_dense();
  Tensor y = rotated(x, cosines, sines, interleaved, false);
  record("rotate_pairs", y, {x},
         [interleaved, saved_cosine = Saved("rotate_pairs", cosines), saved_sine = Saved("rotate_pairs", sines)](
             const Tensor& d_y, Gradients& d) {
           d.set(0, rotated(d_y, saved_cosine.get(), saved_sine.get(), interleaved, true));
         });
  return y;
}

Tensor turn_pairs(const Tensor& x, const Tensor& angle, bool interleaved) {
  constexpr std::string_view name = "turn_pairs";
  const ProfileScope scope(name);
  check_floating(name, x);
  check_floating(name, angle);
  check_same_device(name, x, angle);
  check_rank(name, x, 2, "[..., T, d]");
  check_rank(name, angle, 2, "[..., T, r/2]");
  const std::int64_t pairs = angle.size(-1);
  check(angle.size(-2) == x.size(-2) && 2 * pairs <= x.size(-1), name,
        "angles {} [..., T, r/2] do not fit x {} [..., T, d]: T must be equal and r at most d", angle.shape(),
        x.shape());
  const Shape shape = append_axes(leading_axes(x.shape()), {pairs});
  const auto rows_of = [&](Tensor (*turned)(const Tensor&)) {
    const NoGrad values_alone;
    return as_rows(cast(turned(angle), x.dtype()).detached_broadcast(name, shape));
  };
  const Tensor cosines = rows_of(cos), sines = rows_of(sin);
  Tensor y = rotated(x, cosines, sines, interleaved, false);
  record(name, y, {x, angle},
         [interleaved, pairs, type = angle.dtype(), saved_y = Saved(name, requires_grad(angle) ? y : Tensor()),
          saved_cosine = Saved(name, cosines), saved_sine = Saved(name, sines)](const Tensor& d_y, Gradients& d) {
           if (d.wants(0)) d.set(0, rotated(d_y, saved_cosine.get(), saved_sine.get(), interleaved, true));
           if (!d.wants(1)) return;
           const auto product = [&](bool second) {
             return half_of_pairs(saved_y.get(), pairs, interleaved, second) *
                    half_of_pairs(d_y, pairs, interleaved, !second);
           };
           d.set(1, sum_to(cast(product(false) - product(true), type), d.shape(1)));
         });
  return y;
}

}  // namespace tally
