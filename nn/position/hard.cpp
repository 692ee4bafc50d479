// Hard attention: every query reads one key, the one with the largest logit, the nearest if several are equal.
//   h_ij = 1 for that key, else 0;  o_i = sum_j h_ij v_j
// Backward straight through the softmax a of the same logits (as in arXiv 1308.3432):
//   dv = hᵀ do,  dl = a (da - sum_j a da)  with da_ij = do_i.v_j
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "nn/attention/composed.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

// h from logits [B, H, T, T].
Tensor one_hot(const Tensor& logits, const Tensor& mask) {
  const NoGrad not_recorded;
  const DType dtype = logits.dtype();
  const Tensor one = Tensor::full({1}, 1.0, dtype, logits.device());
  const Tensor zero = Tensor::zeros({1}, dtype, logits.device());
  const Tensor l = masked_fill_min(logits, mask);
  const Tensor largest = where(equal(l, max(l, -1, true)), one, zero);
  // The nearest of equal keys has none of them to its right.
  return largest * where(equal(cumsum(largest, true), one), one, zero);
}

class Hard final : public Encoding {
 public:
  Tensor weights(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const override {
    const Tensor a = Encoding::weights(logits, mask, in);
    return one_hot(logits.detach(), mask) + (a - a.detach());  // exactly h, with the gradient of a
  }
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(hard, NoOptions, Hard, "hard attention: each query reads the key of its largest logit",
               "h_ij = 1 for the largest l_ij of row i (the nearest of equal ones), else 0\n"
               "backward straight through the softmax a: dv = hᵀ do, dl = a (da - sum a da)\n"
               "materialised: needs about 2 B H T² numbers a layer and 4 B H T² more in backward",
               "straight-through gradients: Bengio et al. 2013, arXiv 1308.3432", .straight_through = true);
