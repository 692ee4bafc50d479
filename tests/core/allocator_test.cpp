#include "core/device/allocator.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace tally::allocator_test {

constexpr std::size_t huge_page = std::size_t{1} << 21;

// The kernel's flags of the mapping that contains `address` ("VmFlags" of /proc/self/smaps).
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

// Whether a mapping that asks for them is shown to have asked.
bool grants_huge_pages() {
  constexpr std::size_t bytes = 2 * huge_page;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  const bool asked = madvise(mapped, bytes, MADV_HUGEPAGE) == 0;
  const bool shown = flags_at(reinterpret_cast<std::uintptr_t>(mapped)).find(" hg ") != std::string::npos;
  munmap(mapped, bytes);
  return asked && shown;
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
    EXPECT_EQ(Block(bytes).address() % (grants_huge_pages() ? huge_page : 64), 0) << bytes;
  }
}

TEST(Allocator, AsksForHugePagesButForWhatFillsNone) {
  if (!grants_huge_pages()) GTEST_SKIP() << "this system has no huge pages, or does not show them";
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

}  // namespace tally::allocator_test
