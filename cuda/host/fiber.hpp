// Fibers: stacks that one OS thread switches between by itself. A switch saves the registers that a called function
// must keep, on the stack that is left, and takes those of the other.
#pragma once

#include <cstddef>

namespace tally::cuda_host {

class Fiber {
 public:
  // The stack of the OS thread itself.
  Fiber() = default;
  // A stack of `bytes` with a page below it that cannot be touched. Throws Error when there is no memory.
  explicit Fiber(std::size_t bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to this fiber calls entry() on its empty stack; entry must never return.
  void start(void (*entry)());
  // Leaves the running fiber, this one, for `next`; returns when somebody switches back. last: nobody will.
  void switch_to(Fiber& next, bool last = false);
  // The first thing in entry().
  static void entered();

  // Whether the address lies in the page below the stack: the stack was too small.
  bool guards(const void* address) const;

 private:
  void forget_frames();
  void unpoison();

  void* stack_pointer_ = nullptr;  // of a fiber that waits
  std::byte* mapping_ = nullptr;   // the guard page, then the stack
  std::size_t mapped_ = 0;
  // AddressSanitizer wants to know where the stack lies, and keeps something of its own for a fiber that waits.
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace tally::cuda_host
