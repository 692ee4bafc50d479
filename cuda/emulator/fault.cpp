#include "cuda/emulator/fault.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/emulator/block.hpp"
#include "cuda/emulator/memory.hpp"

namespace tally::cuda_host {
namespace {

// Prints the source lines of addresses in this program, using the program addr2line: a signal handler may not call
// enough functions to read debug information. Prints nothing if addr2line is missing.
void print_lines(const std::array<void*, 32>& calls, int count, const void* fault) {
  std::array<std::array<char, 20>, 32> texts{};
  std::array<const char*, 40> words = {"addr2line", "-C", "-f", "-i", "-p", "-e", ""};
  std::size_t used = 7;
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&report_faults), &own);
  for (int n = 0; n < count && used + 1 < words.size(); ++n) {
    const auto frame = static_cast<std::size_t>(n);
    Dl_info info{};
    if (dladdr(calls[frame], &info) == 0 || info.dli_fbase != own.dli_fbase) continue;
    // The other addresses are return addresses: subtracting one gives an address within the call.
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(calls[frame]) - (calls[frame] == fault ? 0 : 1);
    const std::size_t offset = address - reinterpret_cast<std::uintptr_t>(own.dli_fbase);
    std::snprintf(texts[frame].data(), texts[frame].size(), "%zx", offset);
    words[used++] = texts[frame].data();
  }
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return;
  program[length] = 0;
  words[6] = program;
  const pid_t child = fork();
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp(words[0], const_cast<char* const*>(words.data()));
    _exit(1);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

// The address of the failed access; null if the layout of a context is unknown on this platform.
const void* address_of_fault([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the system gives the address as a number
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#else
  return nullptr;
#endif
}

void print(const char* text) { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text)); }

// The process is lost anyway: unsafe calls in this handler can at worst lose the message.
void report(int, siginfo_t* info, void* context) {
  const std::string overflow = Block::own().stack_overflow_at(info->si_addr);
  if (!overflow.empty()) {
    print("[cuda-host] ");
    print(overflow.c_str());
    print("\n");
  } else if (in_device_memory(info->si_addr, 1)) {
    print("[cuda-host] host code touches device memory, called from\n");
    std::array<void*, 32> calls{};
    const int count = backtrace(calls.data(), static_cast<int>(calls.size()));
    backtrace_symbols_fd(calls.data(), count, STDERR_FILENO);
    print_lines(calls, count, address_of_fault(context));
  }
  signal(SIGSEGV, SIG_DFL);  // the access is repeated after returning
}

void install() {
  struct sigaction before {};
  sigaction(SIGSEGV, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return;
  std::array<void*, 1> call{};
  backtrace(call.data(), 1);  // loads its library now, not in the handler
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
