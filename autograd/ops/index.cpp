// Look-ups at indices that are given by other tensors, or by row and column.
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "core/device/workspace.hpp"

namespace tally {
namespace {

// table [..., P+1], position [..., N]:  c = min(p, P), f = floor(c), w = c - f,  y = (1-w) table[f] + w table[f+1].
//   d_table[f] += (1-w) d_y,  d_table[f+1] += w d_y,  d_position = d_y (table[f+1] - table[f]) if p < P, else 0
// with f+1 limited to P; at an integer p that is the derivative from the right.
Tensor interpolate(std::string_view name, const Tensor& table, const Tensor& position, bool causal) {
  const Tensor z = table.to_dense();
  const Tensor p = position.to_dense();
  Tensor y = Tensor::empty(p.shape(), p.dtype(), p.device());
  kernels(p.device()).interpolate(y.view(), z.view(), p.view(), causal);
  record(name, y, {table, position},
         [causal, kept_table = Saved(name, z), kept_position = Saved(name, p)](const Tensor& d_y, Gradients& d) {
           const Tensor d_table = Tensor::empty(d.shape(0), d_y.dtype(), d_y.device());
           const Tensor d_position = Tensor::empty(d.shape(1), d_y.dtype(), d_y.device());
           const Kernels& on = kernels(d_y.device());
           const Workspace workspace(on.interpolate_backward_workspace(d_table.view()), d_y.device());
           on.interpolate_backward(d_table.view(), d_position.view(), d_y.view(), kept_table.get().view(),
                                   kept_position.get().view(), causal, workspace.data());
           d.set(0, d_table);
           d.set(1, d_position);
         });
  return y;
}

void check_interpolate(std::string_view name, const Tensor& table, const Tensor& position) {
  check_same_floating(name, table, position);
  check(table.rank() >= 1 && position.rank() >= 1 && leading_axes(table.shape()) == leading_axes(position.shape()),
        name, "table [..., P+1] and position [..., N] need the same leading axes: got {} and {}", table.shape(),
        position.shape());
  check(table.size(-1) > 0, name, "the table {} has no rows", table.shape());
}

}  // namespace

void check_ids(std::string_view name, const Tensor& ids, const Tensor& table) {
  check(ids.dtype() == DType::i32, name, "ids must be i32, got {} {}", ids.dtype(), ids.shape());
  const std::vector<std::int32_t> all = ids.to_vector<std::int32_t>();
  for (std::size_t n = 0; n < all.size(); ++n) {
    check(all[n] >= 0 && all[n] < table.size(0), name,
          "id {} (element {} of ids {}) is outside 0..{}, the rows of the table {}", all[n], n, ids.shape(),
          table.size(0) - 1, table.shape());
  }
}

// y[n] = table[ids[n]];  d_table[v] = sum of d_y[n] over all n with ids[n] = v.
Tensor embedding(const Tensor& table, const Tensor& ids) {
  const ProfileScope scope("embedding");
  check_floating("embedding", table);
  check_same_device("embedding", table, ids);
  check(table.rank() == 2, "embedding", "the table must have shape [V, D], got {}", table.shape());
  check(ids.dtype() == DType::i32, "embedding", "ids must be i32, got {} {}", ids.dtype(), ids.shape());
  const Tensor indices = ids.to_dense().detached_reshape({ids.numel()});
  if (ids.device().type == DeviceType::cpu) check_ids("embedding", ids, table);
  Tensor y = Tensor::empty(append_axes(ids.shape(), {table.size(1)}), table.dtype(), table.device());
  kernels(table.device()).embedding(as_rows(y).view(), table.view(), indices.view());
  record("embedding", y, {table}, [kept_ids = Saved("embedding", indices)](const Tensor& d_y, Gradients& d) {
    const Tensor d_table = Tensor::empty(d.shape(0), d_y.dtype(), d_y.device());
    const Kernels& on = kernels(d_y.device());
    const View ids_view = kept_ids.get().view();
    const Workspace workspace(on.embedding_backward_workspace(d_table.view(), ids_view), d_y.device());
    on.embedding_backward(d_table.view(), as_rows(d_y).view(), ids_view, workspace.data());
    d.set(0, d_table);
  });
  return y;
}

// y[..., i, j] = x[..., i, i-j] for j <= i;  d_x[..., i, n] = d_y[..., i, i-n], summed over rows if they share x.
Tensor read_distance(const Tensor& x, std::int64_t length, bool cap) {
  const ProfileScope scope("read_distance");
  check_floating("read_distance", x);
  check_rank("read_distance", x, 2, "[..., T or 1, W]");
  check(x.size(-2) == length || x.size(-2) == 1, "read_distance", "x {} needs {} rows or one, got {}", x.shape(),
        length, x.size(-2));
  check(x.size(-1) > 0, "read_distance", "x {} holds no distances", x.shape());
  Tensor y = Tensor::empty(append_axes(leading_axes(x.shape(), 2), {length, length}), x.dtype(), x.device());
  kernels(x.device()).read_distance(y.view(), x.view(), cap);
  record("read_distance", y, {x}, [cap](const Tensor& d_y, Gradients& d) {
    const Tensor d_x = Tensor::empty(d.shape(0), d_y.dtype(), d_y.device());
    kernels(d_y.device()).read_distance_backward(d_x.view(), d_y.view(), cap);
    d.set(0, d_x);
  });
  return y;
}

Tensor interpolate_causal(const Tensor& table, const Tensor& position) {
  const ProfileScope scope("interpolate_causal");
  check_interpolate("interpolate_causal", table, position);
  check_square("interpolate_causal", position);
  return interpolate("interpolate_causal", table, position, true);
}

Tensor interpolate(const Tensor& table, const Tensor& position) {
  const ProfileScope scope("interpolate");
  check_interpolate("interpolate", table, position);
  return interpolate("interpolate", table, position, false);
}

}  // namespace tally
