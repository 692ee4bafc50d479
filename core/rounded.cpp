#include "core/rounded.hpp"

#include <algorithm>

#include "core/device/backend.hpp"

namespace tally {
namespace {

// The elements converted to another type, with the same layout as in x.
Tensor converted(const Tensor& x, DType dtype) {
  if (!has_all_of_its_storage(x)) return x.to(dtype);
  const Shape all{x.numel()};
  return x.as_strided(all, dense_strides(all), 0).to(dtype).as_strided(x.shape(), x.strides(), x.offset());
}

}  // namespace

bool has_all_of_its_storage(const Tensor& x) {
  return static_cast<std::size_t>(x.numel()) == x.storage()->bytes() / size_of(x.dtype());
}

bool is_rounded_by_products(const Tensor& x) {
  return x.defined() && x.dtype() == DType::f32 && matmul_precision() == ProductPrecision::bf16;
}

Tensor rounded_to_bf16(const Tensor& x) {
  Shape once = x.shape();
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.strides()[axis] == 0) once[axis] = std::min<std::int64_t>(once[axis], 1);
  }
  if (once != x.shape()) {  // repeated elements are rounded once and stay repeated
    const Tensor rounded = rounded_to_bf16(x.as_strided(once, x.strides(), x.offset()));
    Strides strides = rounded.strides();
    for (int axis = 0; axis < x.rank(); ++axis) strides[axis] = x.strides()[axis] == 0 ? 0 : strides[axis];
    return rounded.as_strided(x.shape(), strides, rounded.offset());
  }
  if (!has_all_of_its_storage(x)) return x.to(DType::bf16);
  if (const std::shared_ptr<Storage> rounded = x.storage()->rounded(); rounded != nullptr) {
    return Tensor(rounded, x.shape(), x.strides(), x.offset(), DType::bf16);
  }
  const Tensor rounded = converted(x, DType::bf16);
  x.storage()->set_rounded(rounded.storage());
  return rounded;
}

Tensor widened(const Tensor& x) { return x.dtype() == DType::bf16 ? converted(x, DType::f32) : x.detach(); }

}  // namespace tally
