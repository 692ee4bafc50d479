// Cross entropy of logits [N, V] with one right class a row, over the rows n that the mask lets count (C of them):
//   loss = 1/C sum_n (log sum_v exp(logits[n, v]) - logits[n, target[n]])
//   d_logits[n, v] = (softmax(logits[n])[v] - [v = target[n]]) / C * d_loss
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {
namespace {

void check_operands(const Tensor& logits, const Tensor& targets, const Tensor& mask) {
  check_floating("cross_entropy", logits);
  check_same_device("cross_entropy", logits, targets);
  check_same_device("cross_entropy", logits, mask);
  check_rank("cross_entropy", logits, 1, "[..., V]");
  check(targets.dtype() == DType::i32, "cross_entropy", "targets must be i32, got ", targets.dtype());
  check(mask.dtype() == DType::boolean, "cross_entropy", "the mask must be bool, got ", mask.dtype());
  const Shape leading = leading_axes(logits.shape());
  check(targets.shape() == leading && mask.shape() == leading, "cross_entropy", "logits ", logits.shape(),
        " need targets and mask ", leading, ": got ", targets.shape(), " and ", mask.shape());
}

}  // namespace

std::int64_t counted_targets(const Tensor& targets, const Tensor& mask, std::int64_t classes) {
  if (targets.device().type == DeviceType::meta) return targets.numel();  // nothing is there to be read
  const std::vector<std::int32_t> target = targets.to_vector<std::int32_t>();
  const std::vector<bool> counts = mask.to_vector<bool>();
  std::int64_t count = 0;
  for (std::size_t n = 0; n < target.size(); ++n) {
    if (!counts[n]) continue;
    check(target[n] >= 0 && target[n] < classes, "cross_entropy", "target ", target[n], " (element ", n, " of targets ",
          targets.shape(), ") is outside 0..", classes - 1);
    ++count;
  }
  check(count > 0, "cross_entropy", "the mask ", mask.shape(), " lets no position count");
  return count;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask) {
  check_operands(logits, targets, mask);
  const double weight = 1.0 / static_cast<double>(counted_targets(targets, mask, logits.size(-1)));
  return cross_entropy(logits, targets, mask, Tensor::scalar(weight, logits.dtype(), logits.device()));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask, const Tensor& weight) {
  const ProfileScope scope("cross_entropy");
  check_operands(logits, targets, mask);
  check(weight.numel() == 1 && weight.dtype() == logits.dtype() && weight.device() == logits.device(), "cross_entropy",
        "the weight must be one number of the logits' type on their device, got ", weight.dtype(), " ", weight.shape(),
        " on ", weight.device());
  const Tensor rows = as_rows(logits), factor = weight.detach().reshape_view({});
  const Tensor row_targets = targets.to_dense().reshape_view({rows.size(0)});
  const Tensor row_mask = mask.to_dense().reshape_view({rows.size(0)});
  const Tensor row_loss = Tensor::empty({rows.size(0)}, logits.dtype(), logits.device());
  const Tensor log_sum = Tensor::empty({rows.size(0)}, logits.dtype(), logits.device());
  kernels(logits.device())
      .cross_entropy(row_loss.view(), log_sum.view(), rows.view(), row_targets.view(), row_mask.view());
  Tensor loss = multiply(sum(row_loss), factor);
  record("cross_entropy", loss, {logits},
         [log_sum, kept_factor = Saved("cross_entropy", factor), kept_rows = Saved("cross_entropy", rows),
          kept_targets = Saved("cross_entropy", row_targets),
          kept_mask = Saved("cross_entropy", row_mask)](const Tensor& d_loss, Gradients& d) {
           const Tensor d_row = multiply(d_loss, kept_factor.get()).broadcast_view("cross_entropy", log_sum.shape());
           const Tensor d_rows = Tensor::empty(kept_rows.get().shape(), d_loss.dtype(), d_loss.device());
           kernels(d_loss.device())
               .cross_entropy_backward(d_rows.view(), d_row.view(), log_sum.view(), kept_rows.get().view(),
                                       kept_targets.get().view(), kept_mask.get().view());
           d.set(0, d_rows.reshape_view(d.shape(0)));
         });
  return loss;
}

}  // namespace tally
