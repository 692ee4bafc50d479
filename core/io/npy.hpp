// The .npy format of NumPy (numpy.lib.format): "\x93NUMPY", version, little-endian header length (2 bytes in version 1,
// 4 in 2 and 3), a Python dictionary
//   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
// and the elements. Versions 1, 2 and 3 with '<f4', '<f8', '<i4', '<i8' and '|b1' are read; the file must have exactly
// the bytes that the header promises.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/io/reader.hpp"
#include "core/tensor.hpp"

namespace tally {

struct NpyHeader {
  DType dtype = DType::f32;
  bool fortran_order = false;  // first axis fastest
  Shape shape;
  std::uint64_t data_begin = 0;  // byte of the file
};

// Throws Error naming file and byte if the header differs from the format above.
NpyHeader read_npy_header(const std::string& path);

// A one-dimensional array that is read in parts: it may be longer than a tensor and have types that no tensor has.
struct NpySequence {
  std::string type;  // one of the allowed types: "<u2"
  std::uint64_t size = 0;
  std::uint64_t data_begin = 0;  // byte of the file
};
// Throws Error as read_npy_header, and if the array's rank is not 1 or its type is not in the list. The last character
// of a type is the size of an element in bytes.
NpySequence read_npy_sequence(const FileReader& reader, std::span<const std::string_view> types);

// A dense, row-major tensor whatever the order in the file.
Tensor read_npy(const std::string& path);

// Version 1.0, row-major, data aligned to 64 bytes; atomically (core/io/atomic_file.hpp). CPU, any strides.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace tally
