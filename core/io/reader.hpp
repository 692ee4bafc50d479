// The one way in which files from outside are read. Nothing in such a file is trusted: every range is compared with the
// size of the file before memory is taken, in arithmetic that cannot wrap, and what is wrong becomes an Error that
// names the file and the offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file_descriptor.hpp"
#include "core/shape.hpp"

namespace tally {

class FileReader {
 public:
  // Throws Error unless the path is a regular file that can be opened. A pipe, a device or a folder is refused without
  // waiting for it.
  explicit FileReader(const std::string& path);

  // The path, safe to print.
  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }

  // Fills `target` with the bytes from `offset` on. Throws when the range leaves the file, or when the file has become
  // shorter since it was opened.
  void read(std::uint64_t offset, std::span<std::byte> target) const;
  // The same as text, memory being taken only once the range is known to lie in the file.
  std::string read_string(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void check_range(std::uint64_t offset, std::uint64_t bytes) const;

  std::string name_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

// The whole file. Throws when it holds more than `max_bytes`.
std::string read_whole_file(const std::string& path, std::uint64_t max_bytes);

// Nothing when the result does not fit 64 bits.
std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b);
std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b);

// Why sizes read from a file cannot be the shape of a tensor; empty when they can. Refused are a rank over 8, a size
// that is negative or over 2^31, and bytes that would not fit 63 bits even with every zero read as one (strides are
// made so).
std::string shape_problem(std::span<const std::int64_t> sizes, std::size_t element_bytes);

// The shape of sizes that have no such problem.
Shape shape_of(std::span<const std::int64_t> sizes);

}  // namespace tally
