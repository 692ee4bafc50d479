// SIGINT and SIGTERM: the first asks the run to stop after the step at work, the second ends the program at once.
// SIGPIPE: who reads what is printed may leave, the work goes on.
#pragma once

#include <atomic>

namespace tally {

// Installs the handlers, again without effect; the flag becomes true at the first signal.
const std::atomic<bool>& watch_signals();
// 130 after SIGINT, 143 after SIGTERM, 0 when there was none.
int signal_exit_code();

}  // namespace tally
