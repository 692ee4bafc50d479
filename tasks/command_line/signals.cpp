#include "tasks/command_line/signals.hpp"

#include <signal.h>
#include <unistd.h>

#include <csignal>

namespace tally {
namespace {

std::atomic<bool> stop_asked{false};
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, number)) _exit(128 + number);
  stop_asked.store(true);
}

}  // namespace

const std::atomic<bool>& watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return stop_asked;
}

int signal_exit_code() {
  const int number = first_signal.load();
  return number == 0 ? 0 : 128 + number;
}

}  // namespace tally
