#include "autograd/finite.hpp"

#include <atomic>
#include <cmath>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"

namespace tally {
namespace {

std::atomic<bool> checking{false};

}  // namespace

void set_finite_checks(bool on) { checking.store(on, std::memory_order_relaxed); }
bool finite_checks() { return checking.load(std::memory_order_relaxed); }

bool all_finite(const Tensor& x) {
  if (!x.defined()) return true;
  if (x.dtype() == DType::bf16) return all_finite(x.to(DType::f32));
  if (!is_floating(x.dtype())) return true;
  // One NaN or infinity makes the sum of squares non-finite; summed in double, squares of f32 are far from overflow.
  const Tensor sum = Tensor::empty({1}, DType::f64, x.device());
  const Tensor dense = x.to_dense();
  const View result = sum.view(), elements = dense.view();
  const Kernels& on = kernels(x.device());
  const Workspace workspace(on.squared_norm_workspace({&elements, 1}), x.device());
  on.squared_norm({&result, 1}, {&elements, 1}, workspace.data());
  return std::isfinite(sum.item());
}

void check_finite(std::string_view operation, std::string_view what, const Tensor& x) {
  if (!all_finite(x)) throw NotFinite(formatted("[{}] {}, {}, is not finite", operation, what, x.shape()));
}

}  // namespace tally
