#include "cuda/emulator/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "core/error.hpp"
#include "cuda/emulator/sanitizer.hpp"

#if !defined(TALLY_UCONTEXT_FIBERS) && !defined(__x86_64__) && !defined(__aarch64__)
#define TALLY_UCONTEXT_FIBERS 1
#endif

#if TALLY_UCONTEXT_FIBERS
#include <ucontext.h>
#else
extern "C" void tally_switch_stack(void** left, void* entered);
#endif

namespace tally::cuda_host {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

Fiber::Fiber(std::size_t bytes) {
  const std::size_t page = page_size();
  mapped_ = (bytes + page - 1) / page * page + page;
  void* const mapping =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  check(mapping != MAP_FAILED && mprotect(mapping, page, PROT_NONE) == 0, "cuda-host",
        "the system has no memory left for the stack of a kernel's thread");
  mapping_ = static_cast<std::byte*>(mapping);
  bottom_ = mapping_ + page;
  size_ = mapped_ - page;
}

Fiber::~Fiber() {
  if (mapping_ != nullptr) {
    unpoison();  // for the next user of this memory
    munmap(mapping_, mapped_);
  }
#if TALLY_UCONTEXT_FIBERS
  delete static_cast<ucontext_t*>(stack_pointer_);
#endif
}

bool Fiber::guards(const void* address) const { return address >= mapping_ && address < bottom_; }

#if TALLY_ADDRESS_SANITIZER

namespace {
constinit thread_local Fiber* left = nullptr;  // the fiber that the latest switch left
}

void Fiber::entered() { __sanitizer_finish_switch_fiber(nullptr, &left->bottom_, &left->size_); }

#else

void Fiber::entered() {}

#endif

void Fiber::switch_to(Fiber& next, [[maybe_unused]] bool last) {
#if TALLY_ADDRESS_SANITIZER
  left = this;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, next.bottom_, next.size_);
#endif
#if TALLY_UCONTEXT_FIBERS
  if (stack_pointer_ == nullptr) stack_pointer_ = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(stack_pointer_), static_cast<ucontext_t*>(next.stack_pointer_));
#else
  tally_switch_stack(&stack_pointer_, next.stack_pointer_);
#endif
#if TALLY_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

// Removes AddressSanitizer's marks of frames that never returned: the frames of a kernel that was stopped, and of
// entry().
void Fiber::unpoison() {
#if TALLY_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(bottom_, size_);
#endif
}

void Fiber::forget_frames() {
  unpoison();
  if constexpr (thread_sanitizer) {
    // Data that a finished thread left in this memory cannot race with the next thread.
    const TsanIgnore ignore;
    std::byte* const stack = mapping_ + (mapped_ - size_);
    const void* const mapped = mmap(stack, size_, PROT_READ | PROT_WRITE,
                                    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    check(mapped == stack, "cuda-host", "the system has no memory for the stack of a thread");
  }
}

#if TALLY_UCONTEXT_FIBERS

void Fiber::start(void (*entry)()) {
  forget_frames();
  if (stack_pointer_ == nullptr) stack_pointer_ = new ucontext_t;
  auto* const context = static_cast<ucontext_t*>(stack_pointer_);
  getcontext(context);
  context->uc_stack.ss_sp = mapping_ + (mapped_ - size_);
  context->uc_stack.ss_size = size_;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}

#else

// Tops of stacks are spread over the cache's sets: at equal distances from page boundaries, all fibers' frames would
// compete for the same few sets.
void Fiber::start(void (*entry)()) {
  forget_frames();
  const std::size_t colour = reinterpret_cast<std::size_t>(mapping_) / mapped_ % 16 * 256;
  auto* const top = reinterpret_cast<void**>(mapping_ + mapped_ - colour);
#if defined(__x86_64__)
  // Popped by the switch: six registers, the address to jump to, and the return address of entry.
  void** const frame = top - 8;
  for (int i = 0; i < 8; ++i) frame[i] = nullptr;
  frame[6] = reinterpret_cast<void*>(entry);
#else
  void** const frame = top - 20;
  for (int i = 0; i < 20; ++i) frame[i] = nullptr;
  frame[11] = reinterpret_cast<void*>(entry);  // x30, the target of `ret`
#endif
  stack_pointer_ = frame;
}

#endif

}  // namespace tally::cuda_host

#if !TALLY_UCONTEXT_FIBERS
#if defined(__x86_64__)
asm(R"(
  .text
  .globl tally_switch_stack
  .hidden tally_switch_stack
  .type tally_switch_stack, @function
  .p2align 4
tally_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tally_switch_stack, .-tally_switch_stack
)");
#else
asm(R"(
  .text
  .globl tally_switch_stack
  .hidden tally_switch_stack
  .type tally_switch_stack, %function
  .p2align 4
tally_switch_stack:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  ret
  .size tally_switch_stack, .-tally_switch_stack
)");
#endif
#endif
