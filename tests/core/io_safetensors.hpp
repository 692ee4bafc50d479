// Safetensors files for tests, right and wrong.
#pragma once

#include <string>
#include <string_view>

#include "core/io/safetensors.hpp"
#include "tests/core/io_files.hpp"

namespace tally {

// A file with this header, valid or not, and this number of data bytes.
inline std::string file_bytes(std::string_view header, std::size_t data_bytes) {
  return little_endian<std::uint64_t>(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

inline std::string entry(std::string_view name, std::string_view type, std::string_view shape,
                         std::string_view offsets) {
  return formatted("\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":{}}}", name, type, shape, offsets);
}

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile open(std::string_view bytes) { return SafetensorsFile::open(folder_.file("a.safetensors", bytes)); }
  void expect_refused(std::string_view bytes, std::string_view message) {
    const std::string path = folder_.file("a.safetensors", bytes);
    EXPECT_ERROR(SafetensorsFile::open(path), message);
    EXPECT_ERROR(SafetensorsFile::open(path), "a.safetensors");
  }
  void expect_header_refused(std::string_view header, std::string_view message, std::size_t data_bytes = 8) {
    expect_refused(file_bytes(header, data_bytes), message);
  }
  // An entry that is right except for the tested property.
  void expect_entry_refused(std::string_view type, std::string_view shape, std::string_view offsets,
                            std::string_view message) {
    expect_header_refused("{" + entry("x", type, shape, offsets) + "}", message);
  }

  TemporaryFolder folder_;
};

}  // namespace tally
