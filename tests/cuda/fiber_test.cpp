// The state of a fiber's stack after the fiber has ended.
#include "cuda/emulator/fiber.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <memory>

#include "cuda/emulator/sanitizer.hpp"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TALLY_TEST_RACES 1
#endif
#endif

namespace tally::cuda_host {
namespace {

constexpr std::size_t stack_bytes = 64 * 1024;

struct Switch {
  Fiber thread;
  std::unique_ptr<Fiber> fiber = std::make_unique<Fiber>(stack_bytes);
  volatile std::byte* deepest = nullptr;
};
Switch* current = nullptr;

// Frames with arrays, around which AddressSanitizer marks the neighbouring bytes.
[[gnu::noinline]] void leave_from_depth(int depth) {
  std::array<volatile std::byte, 48> array{};
  current->deepest = array.data();
  array[static_cast<std::size_t>(depth)] = std::byte{1};
  if (depth == 0) current->fiber->switch_to(current->thread, true);
  if (depth > 0) leave_from_depth(depth - 1);
  array[0] = std::byte{2};  // the frame is needed until here, which it never comes to
}

void enter() {
  Fiber::entered();
  leave_from_depth(40);
}

// Linux gives the address again to whoever maps memory next; the library of OpenMP is one that does, at exit.
TEST(Fibers, LeaveMemoryThatCanBeUsed) {
#if TALLY_TEST_RACES
  GTEST_SKIP() << "this test switches without telling ThreadSanitizer, whose own stack of calls would be wrong";
#endif
  Switch both;
  current = &both;
  both.fiber->start(&enter);
  both.thread.switch_to(*both.fiber);
  constexpr std::uintptr_t page = 4096;
  auto* const address = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(both.deepest) / page * page);
  both.fiber.reset();

  void* const mapped =
      mmap(address, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != address) GTEST_SKIP() << "another thread was given the memory";
  auto* const bytes = static_cast<volatile std::byte*>(mapped);
  for (std::size_t i = 0; i < page; ++i) bytes[i] = std::byte{3};
  for (std::size_t i = 0; i < page; ++i) ASSERT_TRUE(bytes[i] == std::byte{3});
  munmap(mapped, page);
}

}  // namespace
}  // namespace tally::cuda_host
