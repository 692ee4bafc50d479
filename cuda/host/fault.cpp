#include "cuda/host/fault.hpp"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <mutex>
#include <string>

#include "cuda/host/block.hpp"
#include "cuda/host/memory.hpp"

namespace tally::cuda_host {
namespace {

void print(const char* text) { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text)); }

// The process is lost; that a part of this may not be called from a handler can cost the message, no more.
void report(int, siginfo_t* info, void*) {
  const std::string overflow = Block::own().stack_overflow_at(info->si_addr);
  if (!overflow.empty()) {
    print("[cuda-host] ");
    print(overflow.c_str());
    print("\n");
  } else if (in_device_memory(info->si_addr, 1)) {
    print("[cuda-host] host code touches device memory, called from\n");
    std::array<void*, 32> calls{};
    backtrace_symbols_fd(calls.data(), backtrace(calls.data(), static_cast<int>(calls.size())), STDERR_FILENO);
  }
  signal(SIGSEGV, SIG_DFL);  // the access is tried again when this returns
}

void install() {
  struct sigaction before {};
  sigaction(SIGSEGV, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return;
  std::array<void*, 1> call{};
  backtrace(call.data(), 1);  // loads what it needs now, not in the handler
  struct sigaction action {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

struct SignalStack {
  std::array<char, 64 << 10> bytes;
  SignalStack() {
    stack_t before{};
    sigaltstack(nullptr, &before);
    if ((before.ss_flags & SS_DISABLE) == 0) return;
    stack_t stack{};
    stack.ss_sp = bytes.data();
    stack.ss_size = bytes.size();
    sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    stack_t stack{};
    sigaltstack(nullptr, &stack);
    if (stack.ss_sp != bytes.data()) return;
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
};

}  // namespace

void report_faults() {
  static std::once_flag once;
  std::call_once(once, install);
  thread_local const std::unique_ptr<SignalStack> stack = std::make_unique<SignalStack>();
}

}  // namespace tally::cuda_host
