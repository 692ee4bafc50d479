// What each command file defines; see Command::declare.
#pragma once

#include "tasks/command_line/command.hpp"

namespace tally {

#define TALLY_COMMAND(name, ...) std::function<Result()> declare_##name(CommandLine& line);
#include "tasks/command_line/commands.def"
#undef TALLY_COMMAND

}  // namespace tally
