// Triangular systems; formulas of forward and backward: core/cpu/solve.cpp.
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "core/device/workspace.hpp"

namespace tally {

Tensor solve_unit_lower(const Tensor& l, const Tensor& given) {
  constexpr std::string_view name = "solve_unit_lower";
  const ProfileScope scope(name);
  check_same_floating(name, l, given);
  check_rank(name, l, 2, "[..., C, C]");
  check_rank(name, given, 2, "[..., C, N]");
  const Shape lead = leading_axes(given.shape(), 2);
  check(l.shape() == append_axes(lead, {given.size(-2), given.size(-2)}), name,
        "l must be [..., C, C] for the given {}, got {}", given.shape(), l.shape());
  const Tensor own_l = l.to_dense();
  Tensor y = Tensor::empty(given.shape(), given.dtype(), given.device());
  {
    const Tensor own_given = given.to_dense();
    const Kernels& on = kernels(given.device());
    const Workspace workspace(on.solve_unit_lower_workspace(y.view()), given.device());
    on.solve_unit_lower(y.view(), own_l.view(), own_given.view(), workspace.data());
  }
  record(name, y, {l, given},
         [kept_l = Saved(name, own_l), kept_y = Saved(name, y.detach())](const Tensor& d_y, Gradients& d) {
           const Tensor own_d_y = d_y.to_dense(), &own = kept_l.get(), &own_y = kept_y.get();
           const Tensor d_l = Tensor::empty(own.shape(), own.dtype(), own.device());
           const Tensor d_given = Tensor::empty(own_y.shape(), own.dtype(), own.device());
           const Kernels& on = kernels(own.device());
           const Workspace workspace(on.solve_unit_lower_backward_workspace(own_y.view()), own.device());
           on.solve_unit_lower_backward(d_l.view(), d_given.view(), own_d_y.view(), own.view(), own_y.view(),
                                        workspace.data());
           d.set(0, d_l);
           d.set(1, d_given);
         });
  return y;
}

}  // namespace tally
