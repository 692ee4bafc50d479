// What each command file defines; see Command::declare.
#pragma once

#include "tasks/runner/command.hpp"

namespace tally {

#define TALLY_COMMAND(name) \
  std::function<int()> declare_##name(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments)
TALLY_COMMAND(train);
TALLY_COMMAND(resume);
#undef TALLY_COMMAND

}  // namespace tally
