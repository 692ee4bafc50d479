// Tensor: storage + shape + strides + offset + dtype, and an opaque pointer to its autograd data.
// Copying is O(1) and shares the elements. There is one tensor type; whether gradients flow is decided by autograd/.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device.hpp"
#include "core/dtype.hpp"
#include "core/shape.hpp"
#include "core/storage.hpp"
#include "core/view.hpp"

namespace tally {

struct AutogradData;  // defined in autograd/node.hpp; core only carries it along

// Numbers in nested braces: {{1, 2}, {3, 4}}. Throws if lists of one level have different shapes.
struct NestedList {
  template <class T>
  requires std::integral<T> || std::floating_point<T> NestedList(T number)
      : values{static_cast<double>(number)} {}  // NOLINT: a number is a list of rank 0
  NestedList(std::initializer_list<NestedList> lists);

  Shape shape;
  std::vector<double> values;  // in row-major order
};

class Tensor {
 public:
  // No tensor at all: defined() is false. Stands for an absent optional argument.
  Tensor() = default;
  Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, std::int64_t offset,
         DType dtype);

  // Uninitialised, dense.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
  // 0, 1, ... n - 1; or begin, begin + step, ... before end.
  static Tensor arange(std::int64_t n, DType dtype = DType::f32, Device device = {});
  static Tensor arange(double begin, double end, double step = 1, DType dtype = DType::f32, Device device = {});
  // The identity matrix [n, n].
  static Tensor eye(std::int64_t n, DType dtype = DType::f32, Device device = {});
  // Uniform in [0, 1), and normal with mean 0 and standard deviation 1; f32 or f64. The numbers depend only on the
  // seed: they are the same bits on every device.
  static Tensor rand(const Shape& shape, std::uint64_t seed, DType dtype = DType::f32, Device device = {});
  static Tensor randn(const Shape& shape, std::uint64_t seed, DType dtype = DType::f32, Device device = {});
  // from({{1, 2}, {3, 4}}): [2, 2].
  static Tensor from(const NestedList& values, DType dtype = DType::f32, Device device = {});
  // Copies the values; their number must match the shape. T: float, double, int32_t, int64_t, bool, Bfloat16.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = {});
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values), shape, device);
  }
  // Rank 0.
  static Tensor scalar(double value, DType dtype = DType::f32, Device device = {});

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  std::int64_t offset() const { return offset_; }
  int rank() const { return shape_.rank; }
  // Size of one axis, negative counted from the end. Throws when out of range.
  std::int64_t size(int axis) const { return shape_[normalise_axis("size", axis, shape_)]; }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }  // of all elements
  DType dtype() const { return dtype_; }
  Device device() const;
  bool dense() const { return is_dense(shape_, strides_); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  std::uint64_t version() const { return storage_->version(); }

  // The argument of kernels. An undefined tensor gives a null view.
  View view() const;

  // Views of the same elements that gradients do not pass. Differentiable are slice(x, ...), select, transpose, reshape
  // and broadcast_to of autograd/ops.hpp.
  Tensor detached_strided(const Shape& shape, const Strides& strides, std::int64_t offset) const;
  // Stride 0 where sizes are 1 and the target is not. Throws Error("[where] ...") unless the shape broadcasts to it.
  Tensor detached_broadcast(std::string_view where, const Shape& shape) const;
  Tensor detached_select(int axis, std::int64_t index) const;                   // drops the axis
  Tensor detached_slice(int axis, std::int64_t begin, std::int64_t end) const;  // [begin, end)
  Tensor detached_transpose(int a, int b) const;
  // Same elements in a new shape; throws unless dense and of equal element count.
  Tensor detached_reshape(const Shape& shape) const;

  // A dense copy on the same device (always fresh memory); never records gradients.
  Tensor clone() const;
  // This tensor if dense, else a dense copy; never records gradients.
  Tensor to_dense() const { return dense() ? detach() : clone(); }
  // Elements converted to another type, fresh memory unless the type is the same.
  Tensor to(DType dtype) const;
  // The elements on another device, dense; never records gradients. Returns this tensor if it is already on that
  // device.
  Tensor to(Device device) const;
  // Copies the elements of `source` (broadcast, converted, from any device) into this tensor and raises the version.
  void copy_from(const Tensor& source);
  void fill(double value);

  // The value of a tensor with one element, as double. Throws otherwise.
  double item() const;
  // All elements in row-major order. T must be the C++ type of dtype().
  template <class T>
  std::vector<T> to_vector() const;
  // Elements of a dense CPU tensor in place. T must be the C++ type of dtype().
  template <class T>
  std::span<T> span() const;

  // Gradients: the functions of autograd/node.hpp as members, defined there.
  bool requires_grad() const;
  Tensor& set_requires_grad(bool requires_grad = true);
  Tensor grad() const;  // undefined before the first backward
  void clear_grad() const;
  void backward() const;

  // The same elements without autograd data.
  Tensor detach() const;
  const std::shared_ptr<AutogradData>& autograd() const { return autograd_; }
  void set_autograd(std::shared_ptr<AutogradData> data) { autograd_ = std::move(data); }

 private:
  std::shared_ptr<Storage> storage_;
  Shape shape_;
  Strides strides_;
  std::int64_t offset_ = 0;
  DType dtype_ = DType::f32;
  std::shared_ptr<AutogradData> autograd_;
};

// The elements in NumPy's layout, rounded to 8 digits, and only the first and last 3 along each axis if there are more
// than 1000.
std::string to_text(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

// The bytes of a dense tensor in host memory.
inline std::span<std::byte> bytes_of(const Tensor& x) { return {static_cast<std::byte*>(x.view().data), x.bytes()}; }

// Tensors by name, in order: a module's parameters, a file's contents.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

}  // namespace tally
