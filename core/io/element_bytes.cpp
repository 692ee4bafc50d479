#include "core/io/element_bytes.hpp"

#include <algorithm>
#include <bit>

#include "core/error.hpp"
#include "core/io/utf8.hpp"

namespace tally {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read and written as they lie in memory");
static_assert(sizeof(bool) == 1);

std::span<std::byte> writable_bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.view().data),
          static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())};
}

}  // namespace

Tensor read_tensor(const FileReader& reader, std::uint64_t offset, const Shape& shape, DType dtype,
                   std::string_view name) {
  Tensor tensor = Tensor::empty(shape, dtype);
  const std::span<std::byte> bytes = writable_bytes_of(tensor);
  reader.read(offset, bytes);
  if (dtype == DType::boolean) {
    const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    check(wrong == bytes.end(), "file", reader.name(), ": tensor '", escape_for_print(name), "': byte ",
          offset + static_cast<std::uint64_t>(wrong - bytes.begin()), " of a bool is neither 0 nor 1");
  }
  return tensor;
}

Tensor to_file_order(std::string_view where, std::string_view name, const Tensor& tensor) {
  check(tensor.defined(), where, "tensor '", escape_for_print(name), "' is undefined");
  return tensor.to_dense().to(Device{});
}

std::span<const std::byte> bytes_of(const Tensor& tensor) { return writable_bytes_of(tensor); }

}  // namespace tally
