// A block of threads on one OS thread. Its threads are fibers that take turns: one runs until it has to wait for others
// at a barrier or in a warp operation, or has left the kernel; then the next in the order of the schedule that can run.
//
// A thread that never waits needs no stack of its own: when it has finished, the next thread runs on the same stack. So
// a kernel without barriers is a plain loop on one stack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emulator/fiber.hpp"
#include "cuda/emulator/language.hpp"
#include "cuda/emulator/sanitizer.hpp"
#include "cuda/emulator/settings.hpp"
#include "cuda/emulator/tensor_cores.hpp"

namespace tally::cuda_host {

inline constexpr int max_block_threads = 1024;
inline constexpr std::size_t max_static_shared_bytes = std::size_t{48} << 10;
// Including dynamic shared memory.
inline std::size_t max_shared_bytes(const Settings& settings) {
  return static_cast<std::size_t>(settings.shared_kib) << 10;
}

// One launch of a kernel: body(arguments) runs one thread.
struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes;
  SourceLine line;
  void (*body)(const void* arguments);
  const void* arguments;
};

class Block {
 public:
  // The block of this OS thread.
  static Block& own();

  // Runs all threads of block number `index` of the launch. Returns an error text, empty if there was no error.
  std::string run(const Launch& launch, const Settings& settings, std::uint64_t index, void* done_token);

  // The operations of the running thread.
  bool barrier(SourceLine line, bool predicate);
  std::uint64_t warp_meet(const detail::WarpRequest& request);
  void* shared_array(const void* site, std::size_t bytes, std::size_t alignment, SourceLine line);
  void* dynamic_shared_memory();
  [[noreturn]] void off_boundary(std::size_t bytes, SourceLine line);
  bool delay_copy(const detail::AsyncCopy& copy);
  bool take_copy(detail::AsyncCopy& copy);
  int lane() const { return current_->number % warpSize; }

  // The message for a fault at this address if a thread ran out of stack; empty otherwise.
  std::string stack_overflow_at(const void* address) const;

 private:
  enum class State : std::uint8_t { fresh, ready, at_barrier, in_warp, gone };
  struct Thread {
    int number = 0;  // x fastest
    uint3 index;
    State state = State::fresh;
    Fiber* fiber = nullptr;
    detail::WarpRequest request{};  // in_warp
    std::uint64_t answer = 0;
    SourceLine line;  // the operation that it waits in
    void* tsan = nullptr;
    unsigned warp_syncs = 0;  // of this thread
  };
  // Bit masks over the lanes of a warp: existing lanes, lanes that wait in a warp operation, finished lanes.
  struct Warp {
    std::uint32_t there = 0, waiting = 0, gone = 0;
  };
  struct SharedArray {
    const void* site;
    void* data;
    std::size_t bytes, alignment;
  };

  void set_up();
  void number_threads();
  void clean_up();
  void set_order();
  Thread* next_that_can_run();
  void make_current(Thread& thread);
  void yield();
  static void enter();
  [[noreturn]] void run_threads() noexcept;
  void leave();
  [[noreturn]] void go_to_main();
  // Ends the launch with an error whose text is text().
  template <class F>
  [[noreturn]] void stop(F&& text);
  Fiber* take_fiber();
  void release_barrier();
  Warp& warp() { return warps_[static_cast<std::size_t>(current_->number / warpSize)]; }
  Thread* lanes() { return &threads_[static_cast<std::size_t>(current_->number - lane())]; }
  void check_warp();
  void check_agree(const Thread& other);
  void complete_warp(std::uint32_t mask);
  std::uint32_t random();

  std::string name_of(const Thread& thread) const;
  std::string call_of(const Thread& thread) const;  // the warp operation it is in
  std::string who_waits_where() const;

  const Launch* launch_ = nullptr;
  Settings settings_;
  std::uint64_t block_number_ = 0;
  void* done_token_ = nullptr;
  std::string error_;

  std::array<Thread, max_block_threads> threads_;
  std::array<Warp, max_block_threads / warpSize> warps_;
  std::array<int, max_block_threads> order_{};
  dim3 numbered_{0, 0, 0};  // block size of the current thread indices
  int count_ = 0;           // threads of the block
  int gone_ = 0;            // threads that have finished
  int can_run_ = 0;         // threads that are not waiting
  int at_barrier_ = 0;
  int cursor_ = 0;  // line in order_
  std::uint64_t random_state_ = 0;
  Thread* current_ = nullptr;
  Thread* first_at_barrier_ = nullptr;
  Thread* first_gone_ = nullptr;

  std::array<SharedArray, 32> shared_{};
  std::size_t shared_count_ = 0;
  std::size_t static_bytes_ = 0;
  void* dynamic_ = nullptr;

  // Copies that have not arrived, of each thread in their order.
  std::array<std::deque<detail::AsyncCopy>, max_block_threads> copies_;

  Fiber main_;
  void* main_tsan_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::array<Fiber*, max_block_threads> free_fibers_{};
  int free_count_ = 0;
  // Addresses that represent barriers for ThreadSanitizer. There are two, which alternate. A thread that is already at
  // the next barrier must not add its accesses to the barrier that others are still leaving.
  std::array<char, 2> barrier_tokens_{};
  std::array<std::array<char, 2>, max_block_threads / warpSize> warp_tokens_{};
  unsigned barriers_ = 0;
  std::array<bool, 2> votes_{};  // of the same barriers: whether every predicate is true
};

}  // namespace tally::cuda_host
