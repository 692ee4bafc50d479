// Fibers: several stacks on one OS thread, with explicit switches. A switch saves the callee-saved registers on the old
// stack, and restores those on the new stack.
#pragma once

#include <cstddef>

namespace tally::cuda_host {

class Fiber {
 public:
  // The stack of the OS thread itself.
  Fiber() = default;
  // A stack of `bytes` above a guard page. Throws Error if there is no memory.
  explicit Fiber(std::size_t bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to this fiber calls entry() on its empty stack; entry must never return.
  void start(void (*entry)());
  // Leaves the running fiber, this one, for `next`; returns after a switch back. last: there will be none.
  void switch_to(Fiber& next, bool last = false);
  // Must be the first call in entry().
  static void entered();

  // Whether the address is in the guard page below the stack: the stack was too small.
  bool guards(const void* address) const;

 private:
  void forget_frames();
  void unpoison();

  void* stack_pointer_ = nullptr;  // of a waiting fiber
  std::byte* mapping_ = nullptr;   // the guard page, then the stack
  std::size_t mapped_ = 0;
  // AddressSanitizer needs the bounds of the stack, and a handle for each waiting fiber.
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace tally::cuda_host
