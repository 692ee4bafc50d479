#include "core/tensor.hpp"

#include <algorithm>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// Bytes of a dense tensor; throws when the product does not fit.
std::size_t bytes_of(const Shape& shape, DType dtype) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (__builtin_mul_overflow(bytes, shape[axis], &bytes)) {
      throw TooLarge(formatted("[tensor] shape {} has too many elements", shape));
    }
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, std::int64_t offset,
               DType dtype)
    : storage_(std::move(storage)), shape_(shape), strides_(strides), offset_(offset), dtype_(dtype) {}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  return Tensor(Storage::allocate(bytes_of(shape, dtype), device), shape, dense_strides(shape), 0, dtype);
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  const Tensor result = empty(shape, dtype, device);
  kernels(device).fill(result.view(), value);
  return result;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0.0, dtype, device); }

Tensor Tensor::scalar(double value, DType dtype, Device device) { return full({}, value, dtype, device); }

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, Device device) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(), "tensor", "{} values cannot fill shape {}",
        values.size(), shape);
  const Tensor result = empty(shape, dtype_of<T>, device);
  if (!values.empty()) backend(device).copy_from_host(result.view().data, values.data(), values.size_bytes());
  return result;
}

template Tensor Tensor::from(std::span<const float>, const Shape&, Device);
template Tensor Tensor::from(std::span<const double>, const Shape&, Device);
template Tensor Tensor::from(std::span<const std::int32_t>, const Shape&, Device);
template Tensor Tensor::from(std::span<const std::int64_t>, const Shape&, Device);
template Tensor Tensor::from(std::span<const bool>, const Shape&, Device);
template Tensor Tensor::from(std::span<const Bfloat16>, const Shape&, Device);

Device Tensor::device() const {
  check(defined(), "tensor", "an undefined tensor has no device");
  return storage_->device();
}

View Tensor::view() const {
  if (!defined()) return {};
  std::byte* data = storage_->data();
  if (data != nullptr) data += static_cast<std::size_t>(offset_) * size_of(dtype_);
  return {data, dtype_, shape_, strides_};
}

Tensor Tensor::detached_strided(const Shape& shape, const Strides& strides, std::int64_t offset) const {
  return Tensor(storage_, shape, strides, offset, dtype_);
}

Tensor Tensor::detached_broadcast(std::string_view where, const Shape& target) const {
  check(shape_.rank <= target.rank, where, "shape {} does not broadcast to {}", shape_, target);
  Strides strides;
  for (int back = 0; back < shape_.rank; ++back) {
    const int from = shape_.rank - 1 - back;
    const int to = target.rank - 1 - back;
    check(shape_[from] == target[to] || shape_[from] == 1, where, "shape {} does not broadcast to {}", shape_, target);
    strides[to] = shape_[from] == target[to] ? strides_[from] : 0;
  }
  return detached_strided(target, strides, offset_);
}

Tensor Tensor::detached_select(int axis, std::int64_t index) const {
  axis = normalise_axis("select", axis, shape_);
  check(index >= 0 && index < shape_[axis], "select", "index {} is out of range for axis {} of shape {}", index, axis,
        shape_);
  Shape shape;
  Strides strides;
  for (int from = 0; from < shape_.rank; ++from) {
    if (from == axis) continue;
    strides[shape.rank] = strides_[from];
    shape.append(shape_[from]);
  }
  return detached_strided(shape, strides, offset_ + index * strides_[axis]);
}

Tensor Tensor::detached_slice(int axis, std::int64_t begin, std::int64_t end) const {
  axis = normalise_axis("slice", axis, shape_);
  check(0 <= begin && begin <= end && end <= shape_[axis], "slice", "[{}, {}) is out of range for axis {} of shape {}",
        begin, end, axis, shape_);
  Shape shape = shape_;
  shape[axis] = end - begin;
  return detached_strided(shape, strides_, offset_ + begin * strides_[axis]);
}

Tensor Tensor::detached_transpose(int a, int b) const {
  a = normalise_axis("transpose", a, shape_);
  b = normalise_axis("transpose", b, shape_);
  Shape shape = shape_;
  Strides strides = strides_;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return detached_strided(shape, strides, offset_);
}

Tensor Tensor::detached_reshape(const Shape& shape) const {
  check(shape.numel() == numel(), "reshape", "shape {} has {} elements and cannot become {}", shape_, numel(), shape);
  check_internal(dense(), "reshape", "a view of strided elements was asked for");
  return detached_strided(shape, dense_strides(shape), offset_);
}

Tensor Tensor::clone() const {
  const Tensor copy = empty(shape_, dtype_, device());
  kernels(device()).copy(copy.view(), view());
  return copy;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return detach();
  const Tensor result = empty(shape_, dtype, device());
  kernels(device()).copy(result.view(), view());
  return result;
}

Tensor Tensor::to(Device target) const {
  if (target == device()) return detach();
  const bool from_host = device().type == DeviceType::cpu || device() == host_of(target);
  const bool to_host = target.type == DeviceType::cpu || target == host_of(device());
  if (!from_host && !to_host) return to(Device{}).to(target);
  const Tensor source = to_dense();
  const Tensor result = empty(shape_, dtype_, target);
  const std::size_t bytes = bytes_of(shape_, dtype_);
  if (bytes > 0 && from_host) backend(target).copy_from_host(result.view().data, source.view().data, bytes);
  if (bytes > 0 && to_host) backend(device()).copy_to_host(result.view().data, source.view().data, bytes);
  return result;
}

void Tensor::copy_from(const Tensor& source) {
  const Tensor here = source.to(device());
  kernels(device()).copy(view(), here.detached_broadcast("copy", shape_).view());
  storage_->bump_version();
}

void Tensor::fill(double value) {
  kernels(device()).fill(view(), value);
  storage_->bump_version();
}

double Tensor::item() const {
  check(defined() && numel() == 1, "item", "the tensor has shape {}, not one element", shape_);
  const Tensor value = to(DType::f64).to(Device{});
  return *value.view().as<double>();
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor dense_elements = to_dense().to(Device{});  // keeps the span's memory alive
  const std::span<T> values = dense_elements.template span<T>();
  return std::vector<T>(values.begin(), values.end());
}

template <class T>
std::span<T> Tensor::span() const {
  check(dtype_of<T> == dtype_, "tensor", "elements are {}, not {}", dtype_, dtype_of<T>);
  check(defined() && dense() && device().type == DeviceType::cpu, "tensor",
        "only a dense tensor on the CPU can be read in place");
  return {view().as<T>(), static_cast<std::size_t>(numel())};
}

#define TALLY_INSTANTIATE(T)                            \
  template std::vector<T> Tensor::to_vector<T>() const; \
  template std::span<T> Tensor::span<T>() const;
TALLY_INSTANTIATE(float)
TALLY_INSTANTIATE(double)
TALLY_INSTANTIATE(std::int32_t)
TALLY_INSTANTIATE(std::int64_t)
TALLY_INSTANTIATE(bool)
TALLY_INSTANTIATE(Bfloat16)
#undef TALLY_INSTANTIATE

Tensor Tensor::detach() const { return Tensor(storage_, shape_, strides_, offset_, dtype_); }

}  // namespace tally
