// Starts tally as a child process: a sweep trains several small models at a time this way.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tally {

// Starts tally with the arguments and appends stdout and stderr to the file `log`. Signals of the terminal do not
// reach it, and it gets SIGTERM when this process ends in any way. Throws Error if it cannot be started.
pid_t start_tally(const std::vector<std::string>& arguments, const std::string& log);

struct EndedProcess {
  pid_t process;
  int code;  // its exit code, or 128 + the signal that ended it
};

// A child that has ended; nothing after `milliseconds` without one, or after a signal.
std::optional<EndedProcess> wait_for_child(int milliseconds);

}  // namespace tally
