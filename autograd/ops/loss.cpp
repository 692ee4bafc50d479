// Cross entropy of logits [N, V] with one right class a row, over the rows n in the mask (C of them):
//   loss = 1/C sum_n (log sum_v exp(logits[n, v]) - logits[n, target[n]]);
//   d_logits[n, v] = (softmax(logits[n])[v] - [v = target[n]]) / C * d_loss.
//
// The same for logits = x weight^T, [N, D] and [V, D], with a large vocabulary: only one strip of rows of the logits is
// in memory at a time. Its gradients are formed at once, and scaled by d_loss in backward:
//   d_x = d_logits weight,  d_weight = sum over strips of d_logits^T x.
// Recomputing the logits in backward would save d_x [N, D] between the passes (d_weight takes its memory then, too).
// It would cost a fourth matmul of N D V multiply-adds in addition to three.
#include <algorithm>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/ops/product.hpp"
#include "autograd/profile.hpp"

namespace tally {
namespace {

// Checks x [..., last axis] with a target and a mask flag for each of its rows.
void check_rows(std::string_view name, std::string_view x_name, const Tensor& x, std::string_view shape,
                const Tensor& targets, const Tensor& mask) {
  check_floating(name, x);
  check_same_device(name, x, targets);
  check_same_device(name, x, mask);
  check_rank(name, x, 1, shape);
  check(targets.dtype() == DType::i32, name, "targets must be i32, got {}", targets.dtype());
  check(mask.dtype() == DType::boolean, name, "the mask must be bool, got {}", mask.dtype());
  const Shape leading = leading_axes(x.shape());
  check(targets.shape() == leading && mask.shape() == leading, name, "{} {} need targets and mask {}: got {} and {}",
        x_name, x.shape(), leading, targets.shape(), mask.shape());
}

void check_factor(std::string_view name, const Tensor& factor, const Tensor& x) {
  check(factor.numel() == 1 && factor.dtype() == x.dtype() && factor.device() == x.device(), name,
        "the weight must be one number of the logits' type on their device, got {} {} on {}", factor.dtype(),
        factor.shape(), factor.device());
}

void check_logits(const Tensor& logits, const Tensor& targets, const Tensor& mask) {
  check_rows("cross_entropy", "logits", logits, "[..., V]", targets, mask);
}

// x[n] *= factor, a tensor with one element.
void scale(const Tensor& x, const Tensor& factor) {
  kernels(x.device())
      .binary(BinaryOp::multiply, x.view(), x.view(), factor.detached_broadcast("scale", x.shape()).view());
}

// Enough rows for efficient matmuls, few enough to stay in a cache unless the vocabulary is very large.
std::int64_t rows_of_strip(std::int64_t vocabulary) {
  constexpr std::int64_t logits = 1 << 22, least = 256;
  return std::max(least, logits / vocabulary);
}

}  // namespace

std::int64_t counted_targets(const Tensor& targets, const Tensor& mask, std::int64_t classes) {
  if (targets.device().type == DeviceType::meta) return targets.numel();  // no data to read
  const std::vector<std::int32_t> target = targets.to_vector<std::int32_t>();
  const std::vector<bool> counts = mask.to_vector<bool>();
  std::int64_t count = 0;
  for (std::size_t n = 0; n < target.size(); ++n) {
    if (!counts[n]) continue;
    check(target[n] >= 0 && target[n] < classes, "cross_entropy",
          "target {} (element {} of targets {}) is outside 0..{}", target[n], n, targets.shape(), classes - 1);
    ++count;
  }
  check(count > 0, "cross_entropy", "the mask {} lets no position count", mask.shape());
  return count;
}

Tensor mse(const Tensor& prediction, const Tensor& target) {
  check_defined("mse", prediction);
  check_defined("mse", target);
  check(prediction.shape() == target.shape(), "mse", "prediction and target must have one shape: got {} and {}",
        prediction.shape(), target.shape());
  return mean(square(prediction - target));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  check_defined("cross_entropy", targets);
  return cross_entropy(logits, targets, Tensor::ones(targets.shape(), DType::boolean, targets.device()));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask) {
  check_logits(logits, targets, mask);
  const double weight = 1.0 / static_cast<double>(counted_targets(targets, mask, logits.size(-1)));
  return cross_entropy(logits, targets, mask, Tensor::scalar(weight, logits.dtype(), logits.device()));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask, const Tensor& weight) {
  return token_cross_entropy(logits, targets, mask, weight).loss;
}

TokenLoss token_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask, const Tensor& weight) {
  constexpr std::string_view name = "cross_entropy";
  const ProfileScope scope(name);
  check_logits(logits, targets, mask);
  check_factor(name, weight, logits);
  const Tensor rows = as_rows(logits), factor = weight.detach().detached_reshape({});
  const Tensor row_targets = targets.to_dense().detached_reshape({rows.size(0)});
  const Tensor row_mask = mask.to_dense().detached_reshape({rows.size(0)});
  const Tensor row_loss = Tensor::empty({rows.size(0)}, logits.dtype(), logits.device());
  const Tensor log_sum = Tensor::empty({rows.size(0)}, logits.dtype(), logits.device());
  const Tensor largest = Tensor::empty({rows.size(0)}, DType::i64, logits.device());
  kernels(logits.device())
      .cross_entropy(row_loss.view(), log_sum.view(), largest.view(), rows.view(), row_targets.view(), row_mask.view());
  Tensor loss = multiply(sum(row_loss), factor);
  record(
      name, loss, {logits},
      [log_sum, kept_factor = Saved(name, factor), kept_rows = Saved(name, rows),
       kept_targets = Saved(name, row_targets), kept_mask = Saved(name, row_mask)](const Tensor& d_loss, Gradients& d) {
        const Tensor d_row = multiply(d_loss, kept_factor.get()).detached_broadcast("cross_entropy", log_sum.shape());
        const Tensor d_rows = Tensor::empty(kept_rows.get().shape(), d_loss.dtype(), d_loss.device());
        kernels(d_loss.device())
            .cross_entropy_backward(d_rows.view(), d_row.view(), log_sum.view(), kept_rows.get().view(),
                                    kept_targets.get().view(), kept_mask.get().view());
        d.set(0, d_rows.detached_reshape(d.shape(0)));
      });
  const Shape leading = leading_axes(logits.shape());
  return {loss, row_loss.detached_reshape(leading), largest.detached_reshape(leading)};
}

TokenLoss linear_cross_entropy(const Tensor& x, const Tensor& head, const Tensor& targets, const Tensor& mask,
                               const Tensor& weight, std::int64_t strip_rows) {
  constexpr std::string_view name = "linear_cross_entropy";
  const ProfileScope scope(name);
  check_rows(name, "rows", x, "[..., D]", targets, mask);
  check_same_type(name, x, head);
  check(head.rank() == 2 && head.size(1) == x.size(-1) && head.size(0) > 0, name, "rows {} need a head [V, {}], got {}",
        x.shape(), x.size(-1), head.shape());
  check_factor(name, weight, x);
  const Tensor rows = as_rows(x), classes = head.to_dense(), factor = weight.detach().detached_reshape({});
  const std::int64_t count = rows.size(0), vocabulary = classes.size(0);
  const Tensor row_targets = targets.to_dense().detached_reshape({count}),
               row_mask = mask.to_dense().detached_reshape({count});
  const Tensor row_loss = Tensor::empty({count}, x.dtype(), x.device());
  const Tensor best = Tensor::empty({count}, DType::i64, x.device());
  Tensor d_rows, d_head;
  if (needs_grad({x})) d_rows = Tensor::empty(rows.shape(), x.dtype(), x.device());
  if (needs_grad({head})) d_head = Tensor::zeros(classes.shape(), x.dtype(), x.device());
  {
    const Kernels& on = kernels(x.device());
    const std::int64_t height = std::min(count, strip_rows > 0 ? strip_rows : rows_of_strip(vocabulary));
    const Tensor strip = Tensor::empty({height, vocabulary}, x.dtype(), x.device());
    const Tensor sums = Tensor::empty({height}, x.dtype(), x.device());
    for (std::int64_t begin = 0; begin < count; begin += height) {
      const std::int64_t end = std::min(begin + height, count);
      const auto part = [&](const Tensor& all) { return all.detached_slice(0, begin, end); };
      const Tensor logits = strip.detached_slice(0, 0, end - begin), log_sum = sums.detached_slice(0, 0, end - begin);
      const View target = part(row_targets).view(), counts = part(row_mask).view();
      multiply_into(logits, part(rows), transposed(classes));
      on.cross_entropy(part(row_loss).view(), log_sum.view(), part(best).view(), logits.view(), target, counts);
      if (!d_rows.defined() && !d_head.defined()) continue;
      const Tensor d_row = factor.detached_broadcast(name, log_sum.shape());
      on.cross_entropy_backward(logits.view(), d_row.view(), log_sum.view(), logits.view(), target, counts);
      if (d_rows.defined()) multiply_into(part(d_rows), logits, classes);
      if (d_head.defined()) multiply_into(d_head, transposed(logits), part(rows), {.residual = d_head.view()});
    }
  }
  Tensor loss = multiply(sum(row_loss), factor);
  record(name, loss, {x, head}, [d_rows, d_head](const Tensor& d_loss, Gradients& d) {
    if (d.wants(0)) {
      scale(d_rows, d_loss);
      d.set(0, d_rows.detached_reshape(d.shape(0)));
    }
    if (d.wants(1)) {
      scale(d_head, d_loss);
      d.set(1, d_head);
    }
  });
  const Shape leading = leading_axes(x.shape());
  return {loss, row_loss.detached_reshape(leading), best.detached_reshape(leading)};
}

}  // namespace tally
