// The only way in which files from outside are read. Nothing in such a file is trusted: every range is compared with
// the size of the file before memory is allocated, in arithmetic that cannot wrap. Any mistake becomes an Error that
// names the file and the offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file_descriptor.hpp"
#include "core/tensor.hpp"

namespace tally {

class FileReader {
 public:
  // Throws Error unless the path is a regular file that can be opened. A pipe, a device or a folder is refused without
  // waiting for it. A Git LFS pointer is refused because the real file is elsewhere.
  explicit FileReader(const std::string& path);

  // The path, safe to print.
  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }

  // Fills `target` with the bytes from `offset` on. Throws when the range leaves the file, or when the file has become
  // shorter since it was opened.
  void read(std::uint64_t offset, std::span<std::byte> target) const;
  // The same as text. Memory is allocated only once the range is known to be within the file.
  std::string read_string(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void check_range(std::uint64_t offset, std::uint64_t bytes) const;

  std::string name_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

// The whole file. Throws when it holds more than `max_bytes`.
std::string read_whole_file(const std::string& path, std::uint64_t max_bytes);

// The whole file as text. Throws when it is empty, longer than `max_bytes` or not UTF-8 (with the offset of the first
// wrong byte). A byte order mark at the beginning is kept as it is: it is a character like any other.
std::string read_text(const std::string& path, std::uint64_t max_bytes);

// The shape with the sizes read from a file. Throws Error for a rank over 8, for a size that is negative or over 2^31,
// and if the bytes would not fit 63 bits even with every zero read as one (strides are computed so).
Shape shape_from_file(std::span<const std::int64_t> sizes, std::size_t element_bytes);

// The elements in files are stored as in memory: row-major, little-endian, a bool one byte of 0 or 1.

// A tensor whose elements are the bytes from `offset` on. Throws Error naming file, tensor and byte when a bool is
// neither 0 nor 1, or when the memory cannot be had.
Tensor read_tensor(const FileReader& reader, std::uint64_t offset, const Shape& shape, DType dtype,
                   std::string_view name);

// The tensor itself if it is dense and on the CPU, otherwise a copy that is. Throws Error("[where] name ...") if it is
// undefined.
Tensor to_file_order(std::string_view where, std::string_view name, const Tensor& tensor);

}  // namespace tally
