#include "cuda/emulator/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "cuda/emulator/fault.hpp"
#include "cuda/emulator/settings.hpp"

namespace tally::cuda_host {
namespace {

constexpr std::size_t alignment = 256;  // as in cudaMallocAsync
constexpr int nan_byte = 0xff;          // NaN in every floating type

struct DeviceBlock {
  std::size_t bytes;
  std::byte* pages = nullptr;  // pages of a protected block, which ends at their end, as far as its alignment allows
  std::size_t page_bytes = 0;
};

struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, DeviceBlock> blocks;
  int accesses = 0;  // number of DeviceAccess objects
  std::size_t protected_blocks = 0;
};

// Never destroyed: tensors with static lifetime may be freed after it would be.
Memory& memory() {
  static Memory* const instance = new Memory;
  return *instance;
}

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

void set_protection(const Memory& m, int protection) {
  if (m.protected_blocks == 0) return;
  for (const auto& [address, block] : m.blocks) {
    if (block.pages != nullptr) mprotect(block.pages, block.page_bytes, protection);
  }
}

// The first block that ends after the address.
const std::pair<const std::uintptr_t, DeviceBlock>* block_at_or_after(const Memory& m, std::uintptr_t address) {
  auto found = m.blocks.upper_bound(address);
  if (found != m.blocks.begin()) {
    const auto before = std::prev(found);
    if (address < before->first + before->second.bytes) return &*before;
  }
  return found == m.blocks.end() ? nullptr : &*found;
}

}  // namespace

void* take_device_memory(std::size_t bytes) {
  DeviceBlock block{bytes};
  std::byte* data = nullptr;
  const bool protect = settings().protect_memory;
  if (protect) {
    report_faults();
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    block.page_bytes = (bytes + page - 1) / page * page;
    void* const pages =
        mmap(nullptr, block.page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    block.pages = static_cast<std::byte*>(pages);
    data = block.pages + (block.page_bytes - bytes) / alignment * alignment;
  } else {
    data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{alignment}, std::nothrow));
    if (data == nullptr) return nullptr;
  }
  std::memset(data, nan_byte, bytes);
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (protect) {
    ++m.protected_blocks;
    if (m.accesses == 0) mprotect(block.pages, block.page_bytes, PROT_NONE);
  }
  m.blocks.emplace(number_of(data), block);
  return data;
}

bool free_device_memory(void* data) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto found = m.blocks.find(number_of(data));
  if (found == m.blocks.end()) return false;
  if (found->second.pages != nullptr) {
    munmap(found->second.pages, found->second.page_bytes);
    --m.protected_blocks;
  } else {
    ::operator delete (data, std::align_val_t{alignment});
  }
  m.blocks.erase(found);
  return true;
}

std::size_t device_block_bytes(const void* block) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto found = m.blocks.find(number_of(block));
  return found == m.blocks.end() ? 0 : found->second.bytes;
}

void poison_device_memory(void* data, std::size_t bytes) {
  const DeviceAccess access;
  std::memset(data, nan_byte, bytes);
}

bool in_device_memory(const void* data, std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto* const block = block_at_or_after(m, number_of(data));
  return block != nullptr && block->first <= number_of(data) &&
         number_of(data) + bytes <= block->first + block->second.bytes;
}

bool in_host_memory(const void* data, std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto* const block = block_at_or_after(m, number_of(data));
  return data != nullptr && (block == nullptr || number_of(data) + bytes <= block->first);
}

DeviceAccess::DeviceAccess() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (m.accesses++ == 0) set_protection(m, PROT_READ | PROT_WRITE);
}

DeviceAccess::~DeviceAccess() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (--m.accesses == 0) set_protection(m, PROT_NONE);
}

}  // namespace tally::cuda_host
