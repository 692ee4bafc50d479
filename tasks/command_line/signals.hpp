// SIGINT and SIGTERM: the first asks the run to stop after the current step, the second ends the program at once.
// SIGPIPE is ignored: work continues when the reader of the output exits.
#pragma once

#include <atomic>

namespace tally {

// Installs the handlers, again without effect; the flag becomes true at the first signal.
const std::atomic<bool>& watch_signals();
// 130 after SIGINT, 143 after SIGTERM, 0 when there was none.
int signal_exit_code();

}  // namespace tally
