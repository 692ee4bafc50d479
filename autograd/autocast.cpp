#include "autograd/autocast.hpp"

#include <algorithm>
#include <utility>

#include "autograd/node.hpp"
#include "core/device/backend.hpp"

namespace tally {
namespace {

bool covers_storage(const Tensor& x) { return x.bytes() == x.storage()->bytes(); }

// A broadcast tensor stores fewer elements than its shape has, and converting it would store them all.
bool is_repeated(const Tensor& x) { return x.bytes() > x.storage()->bytes(); }

// x in another type. The layout stays if x covers its storage.
Tensor converted(const Tensor& x, DType dtype) {
  if (!covers_storage(x)) return x.to(dtype);
  const Shape all{x.numel()};
  return x.detached_strided(all, dense_strides(all), 0).to(dtype).detached_strided(x.shape(), x.strides(), x.offset());
}

bool has_bf16(const Tensor& x) {
  return x.dtype() == DType::bf16 || (x.dtype() == DType::f32 && x.storage()->cached_bf16() != nullptr);
}

}  // namespace

bool matmul_uses_bf16(DType dtype) { return dtype == DType::f32 && matmul_precision() == MatmulPrecision::bf16; }

DType output_type(OutputPrecision precision, DType computed) {
  return precision == OutputPrecision::matmul_input && matmul_uses_bf16(computed) ? DType::bf16 : computed;
}

bool is_matmul_input(const Tensor& x) {
  return x.defined() && x.dtype() == DType::bf16 && matmul_uses_bf16(DType::f32);
}

Tensor to_bf16_cached(const Tensor& x) {
  if (x.dtype() == DType::bf16) return x.detach();
  Shape once = x.shape();
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.strides()[axis] == 0) once[axis] = std::min<std::int64_t>(once[axis], 1);
  }
  if (once != x.shape()) {  // repeated elements are rounded once and stay repeated
    const Tensor rounded = to_bf16_cached(x.detached_strided(once, x.strides(), x.offset()));
    Strides strides = rounded.strides();
    for (int axis = 0; axis < x.rank(); ++axis) strides[axis] = x.strides()[axis] == 0 ? 0 : strides[axis];
    return rounded.detached_strided(x.shape(), strides, rounded.offset());
  }
  if (!covers_storage(x)) return x.to(DType::bf16);
  if (const std::shared_ptr<Storage> cached = x.storage()->cached_bf16(); cached != nullptr) {
    return Tensor(cached, x.shape(), x.strides(), x.offset(), DType::bf16);
  }
  const Tensor rounded = converted(x, DType::bf16);
  x.storage()->set_cached_bf16(rounded.storage());
  return rounded;
}

Tensor to_f32(const Tensor& x) {
  if (x.dtype() != DType::bf16) return x;
  Tensor y = converted(x, DType::f32);
  if (covers_storage(x)) y.storage()->set_cached_bf16(x.storage());  // whoever saves y in bf16 saves x
  record("to_f32", y, {x}, [](const Tensor& d_y, Gradients& d) { d.set(0, d_y); });
  return y;
}

Tensor bf16_operand(const Tensor& x) {
  // A cached copy has the layout of the whole storage, so strides and offset of x apply to it.
  if (const std::shared_ptr<Storage> cached = x.storage()->cached_bf16(); cached != nullptr) {
    return Tensor(cached, x.shape(), x.strides(), x.offset(), DType::bf16);
  }
  return to_bf16_cached(x);
}

Tensor matmul_operand(const Tensor& x, const Tensor& other, const Tensor& c) {
  if (!matmul_uses_bf16(DType::f32)) return to_f32(x);
  if (is_cpu(x.device())) return x;
  const auto is_bf16 = [](const Tensor& one) { return one.dtype() == DType::bf16; };
  const bool needs_bf16 = is_bf16(x) || is_bf16(other) || is_bf16(c) || (has_bf16(x) && has_bf16(other));
  return needs_bf16 ? bf16_operand(x) : x;
}

Tensor fused_operand(const Tensor& x) {
  if (!matmul_uses_bf16(x.dtype())) return x;
  Tensor y = to_bf16_cached(x);
  record("round", y, {x}, [](const Tensor& d_y, Gradients& d) { d.set(0, d_y); });
  return y;
}

Tensor cache_operand(const Tensor& x) {
  const bool is_shared = x.defined() && !is_cpu(x.device()) && matmul_uses_bf16(x.dtype());
  return is_shared ? bf16_operand(x) : Tensor();
}

std::vector<Tensor> cache_operands(std::span<const Tensor> parameters) {
  std::vector<Tensor> cached;
  std::vector<View> rounded, given;
  for (const Tensor& x : parameters) {
    if (is_cpu(x.device()) || !matmul_uses_bf16(x.dtype()) || !covers_storage(x)) continue;
    if (x.storage()->cached_bf16() == nullptr) {
      cached.push_back(Tensor::empty(x.shape(), DType::bf16, x.device()));
      x.storage()->set_cached_bf16(cached.back().storage());
      rounded.push_back(cached.back().view());
      given.push_back(x.view());
    } else {
      cached.push_back(to_bf16_cached(x));
    }
  }
  if (!given.empty()) kernels(cached.front().device()).round_to_bf16(rounded, given);
  return cached;
}

Saved save_activation(std::string_view operation, const Tensor& x) {
  const bool leaf = x.autograd() != nullptr && x.autograd()->producer == nullptr;
  const bool is_rounded = grad_enabled() && !leaf && x.defined() && matmul_uses_bf16(x.dtype()) && !is_repeated(x);
  return {operation, is_rounded ? to_bf16_cached(x) : x};
}

Saved save_operand(std::string_view operation, Tensor& x, const Tensor& other) {
  if (!requires_grad(other)) return {};
  Saved saved = save_activation(operation, x);
  Tensor operand = saved.get();
  operand.set_autograd(x.autograd());
  x = std::move(operand);
  return saved;
}

Tensor bf16_cache_to_fill(const Tensor& x) {
  if (!matmul_uses_bf16(x.dtype()) || !covers_storage(x) || x.storage()->cached_bf16() != nullptr) return {};
  const Tensor copy = Tensor::empty(x.shape(), DType::bf16, x.device());
  x.storage()->set_cached_bf16(copy.storage());
  return copy;
}

Tensor held_bf16_to_fill(const Tensor& gradient) {
  if (is_cpu(gradient.device())) return {};
  const Tensor copy = bf16_cache_to_fill(gradient);
  if (copy.defined()) gradient.storage()->hold_cached_bf16(copy.storage());
  return copy;
}

}  // namespace tally
