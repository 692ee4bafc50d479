#include "core/allocator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace tally {
namespace {

constexpr std::size_t huge_page = std::size_t{1} << 21;

// What the system keeps about the mapping that `address` is in ("VmFlags" of /proc/self/smaps).
std::string flags_at(std::uintptr_t address) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream range(line); range >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= address && address < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + ' ';
    }
  }
  return "";
}

class Block {
 public:
  explicit Block(std::size_t bytes) : bytes_(bytes), data_(allocate_bytes(bytes)) {}
  ~Block() { free_bytes(data_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST(Allocator, AlignsBlocksToLinesAndLargeOnesToHugePages) {
  EXPECT_EQ(allocate_bytes(0), nullptr);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{1} << 15, huge_page - 64}) {
    EXPECT_EQ(Block(bytes).address() % 64, 0) << bytes;
  }
  for (const std::size_t bytes : {huge_page, huge_page + 1, 5 * huge_page / 2}) {
    EXPECT_EQ(Block(bytes).address() % huge_page, 0) << bytes;
  }
}

TEST(Allocator, AsksForHugePagesButForWhatFillsNone) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "no huge pages here";
  const Block block(5 * huge_page / 2);
  EXPECT_NE(flags_at(block.address()).find(" hg "), std::string::npos) << flags_at(block.address());
  EXPECT_NE(flags_at(block.address() + 2 * huge_page - 1).find(" hg "), std::string::npos);
  EXPECT_EQ(flags_at(block.address() + 2 * huge_page).find(" hg "), std::string::npos);
}

TEST(Allocator, CountsWhatIsInUse) {
  const std::size_t live = memory_counters().live_bytes;
  {
    const Block block(3 * huge_page);
    EXPECT_EQ(memory_counters().live_bytes, live + block_bytes(3 * huge_page));
  }
  EXPECT_EQ(memory_counters().live_bytes, live);
}

}  // namespace
}  // namespace tally
