// Shared by the tests of core/io: a temporary folder, files made from bytes, and the message of an Error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/error_of.hpp"

namespace tally {

// A folder that goes with its content when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tally-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  // A file with these bytes; its path.
  std::string file(std::string_view name, std::string_view bytes) const {
    std::filesystem::remove(file(name));  // much faster than to write over it, on file systems that then sync
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }
  std::size_t file_count() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number's bytes in a little-endian file.
template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

using testing::error_of;

inline bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

#define EXPECT_ERROR(action, part)                                                                                \
  do {                                                                                                            \
    const std::string message_of_error = error_of([&] { action; });                                               \
    EXPECT_TRUE(holds(message_of_error, part)) << "message: " << message_of_error << "\nshould hold: " << (part); \
  } while (false)

}  // namespace tally
