// The recurrence of an LSTM (Hochreiter & Schmidhuber 1997; forget gate: Gers, Schmidhuber & Cummins 2000):
//   (a_i, a_f, a_g, a_o) = x_t + W h_{t-1},  i, f, o = sigmoid(a),  g = tanh(a_g);
//   c_t = f c_{t-1} + i g,  h_t = o tanh(c_t).
// Backward needs gates, cells and h of every step. The kernel computes the gradient of the sums a, which is also x's:
//   d_weight = sum over sequences and steps of d_a_t h_{t-1}^T
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "core/device/workspace.hpp"

namespace tally {
namespace {

void check_lstm(const Tensor& x, const Tensor& weight, const Tensor& hidden, const Tensor& cell) {
  for (const Tensor* other : {&weight, &hidden, &cell}) check_same_floating("lstm", x, *other);
  check(x.rank() == 3 && x.size(2) % 4 == 0, "lstm", "x must have shape [B, T, 4D], got {}", x.shape());
  const std::int64_t width = x.size(2) / 4;
  check(weight.shape() == Shape{4 * width, width}, "lstm", "the weight must have shape [{}, {}] for x {}, got {}",
        4 * width, width, x.shape(), weight.shape());
  for (const Tensor* start : {&hidden, &cell}) {
    check(start->shape() == Shape{x.size(0), width}, "lstm",
          "hidden and cell must have shape [{}, {}] for x {}, got {}", x.size(0), width, x.shape(), start->shape());
  }
}

// h before each step, as rows: [B T, D].
Tensor earlier_rows(const Tensor& y, const Tensor& hidden) {
  const std::int64_t length = y.size(1);
  const Tensor earlier = Tensor::empty(y.shape(), y.dtype(), y.device());
  if (length > 0) {
    earlier.detached_select(1, 0).copy_from(hidden);
    earlier.detached_slice(1, 1, length).copy_from(y.detached_slice(1, 0, length - 1));
  }
  return as_rows(earlier);
}

}  // namespace

LstmSteps lstm(const Tensor& x, const Tensor& weight, const Tensor& hidden, const Tensor& cell) {
  const ProfileScope scope("lstm");
  check_lstm(x, weight, hidden, cell);
  const Tensor own_x = x.to_dense(), own_weight = weight.to_dense();
  const Tensor own_hidden = hidden.to_dense(), own_cell = cell.to_dense();
  const Shape shape{x.size(0), x.size(1), x.size(2) / 4};
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor cells = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor gates = Tensor::empty(x.shape(), x.dtype(), x.device());
  {
    const Kernels& on = kernels(x.device());
    const Workspace workspace(on.lstm_workspace(own_weight.view()), x.device());
    on.lstm(y.view(), gates.view(), cells.view(), own_x.view(), own_weight.view(), own_hidden.view(), own_cell.view(),
            workspace.data());
  }
  record("lstm", y, {x, weight, hidden, cell},
         [kept_y = Saved("lstm", y.detach()), kept_cells = Saved("lstm", cells), gates,
          kept_weight = Saved("lstm", own_weight), kept_hidden = Saved("lstm", own_hidden),
          kept_cell = Saved("lstm", own_cell)](const Tensor& d_y, Gradients& d) {
           const Tensor own_d_y = d_y.to_dense();
           const Tensor d_x = Tensor::empty(gates.shape(), d_y.dtype(), d_y.device());
           const Tensor d_hidden = Tensor::empty(kept_hidden.get().shape(), d_y.dtype(), d_y.device());
           const Tensor d_cell = Tensor::empty(d_hidden.shape(), d_y.dtype(), d_y.device());
           const Kernels& on = kernels(d_y.device());
           const Workspace workspace(on.lstm_backward_workspace(d_hidden.view()), d_y.device());
           on.lstm_backward(d_x.view(), d_hidden.view(), d_cell.view(), own_d_y.view(), gates.view(),
                            kept_cells.get().view(), kept_weight.get().view(), kept_cell.get().view(),
                            workspace.data());
           d.set(0, d_x);
           if (d.wants(1)) {
             d.set(1, matmul(as_rows(d_x).detached_transpose(0, 1), earlier_rows(kept_y.get(), kept_hidden.get())));
           }
           d.set(2, d_hidden);
           d.set(3, d_cell);
         });
  return {y, cells};
}

}  // namespace tally
