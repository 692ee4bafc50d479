// What each command file defines; see Command::declare.
#pragma once

#include "tasks/runner/command.hpp"

namespace tally {

#define TALLY_COMMAND(name, summary) std::function<Result()> declare_##name(CommandLine& line);
#include "tasks/runner/commands.def"
#undef TALLY_COMMAND

}  // namespace tally
