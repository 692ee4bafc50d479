// Elements as they lie in files: row-major, little-endian, a bool one byte of 0 or 1. Shared by the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/io/reader.hpp"
#include "core/tensor.hpp"

namespace tally {

// A tensor whose elements are the bytes from `offset` on. Throws Error naming file, tensor and byte when a bool is
// neither 0 nor 1, or when the memory cannot be had.
Tensor read_tensor(const FileReader& reader, std::uint64_t offset, const Shape& shape, DType dtype,
                   std::string_view name);

// The tensor itself if dense and on the CPU, else such a copy. Throws Error("[where] name ...") when it is undefined.
Tensor to_file_order(std::string_view where, std::string_view name, const Tensor& tensor);

// The bytes of a dense CPU tensor; they live as long as its storage.
std::span<const std::byte> bytes_of(const Tensor& tensor);

}  // namespace tally
