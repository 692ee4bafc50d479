// The safetensors format (https://github.com/huggingface/safetensors): the length of the header, 8 bytes little-endian;
// the header, JSON:
//   {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
// and the data, row-major and little-endian; offsets count from the end of the header.
//
// A file is never trusted. The header has at most 16 MiB and 100,000 tensors. It is strict JSON of depth at most 4 with
// integers only, and at most 1 MiB for a name with escapes. Types are known, ranks are at most 8, sizes at most 2^31.
// The size of a tensor equals shape x type; the tensors tile the data without a hole, an overlap or a trailing byte.
// Errors name file, tensor and byte of the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/reader.hpp"
#include "core/tensor.hpp"

namespace tally {

using Metadata = std::map<std::string, std::string>;
struct SafetensorsEntry {
  std::string name;
  std::string_view type;       // as in the file: "F32", "BF16"
  std::optional<DType> dtype;  // nothing for a type that tally does not compute with
  Shape shape;
  std::uint64_t begin = 0;  // bytes [begin, end) of the file
  std::uint64_t end = 0;
};
struct SafetensorsHeader {
  Metadata metadata;
  std::vector<SafetensorsEntry> entries;  // as in the file
  std::vector<std::size_t> by_name;       // indices into entries
};

class SafetensorsFile {
 public:
  // Reads and checks the header; the data are not read yet.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return reader_.name(); }
  const Metadata& metadata() const { return header_.metadata; }
  // In the order of the header.
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsEntry* find(std::string_view name) const;  // null when missing

  // Throws Error when there is no such tensor, tally has no such type, or a byte of a bool is neither 0 nor 1.
  Tensor read(std::string_view name) const;
  // F32 as it is; F16 and BF16 widened, which is exact. Throws Error for other types.
  Tensor read_widened(std::string_view name) const;
  // CRC-32C of the tensor's bytes, read in chunks.
  std::uint32_t checksum(const SafetensorsEntry& entry) const;

 private:
  explicit SafetensorsFile(const std::string& path) : reader_(path) {}
  const SafetensorsEntry& entry_of(std::string_view name) const;

  FileReader reader_;
  SafetensorsHeader header_;
};

// The format of f32 and f64 tensors in a file: unchanged, or rounded to the nearest number of a two-byte type.
enum class FloatsAs : std::uint8_t { given, f16, bf16 };

// Writes the tensors (CPU, any strides) in the order given, atomically (core/io/atomic_file.hpp). The same arguments
// give the same bytes: metadata sorted by key, the header padded with blanks to a multiple of 8. Throws Error if two
// names are the same, a name is "__metadata__", a text is not UTF-8, or a number exceeds the range of F16.
void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {},
                       FloatsAs floats = FloatsAs::given);

// Adds "checksum.<tensor>" (CRC-32C of its bytes, 8 hexadecimal digits) for each tensor, and "checksum" over the names,
// types and shapes and the rest of the metadata. Metadata added afterwards invalidates the last one.
void add_checksums(Metadata& metadata, const NamedTensors& tensors);

// The tensors whose checksum is missing or wrong, and "__metadata__" if the header's checksum is. Empty if all are
// correct.
std::vector<std::string> verify_checksums(const SafetensorsFile& file);

}  // namespace tally
