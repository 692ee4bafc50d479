// What each command file defines; see Command::declare.
#pragma once

#include "tasks/runner/command.hpp"

namespace tally {

#define TALLY_COMMAND(name) \
  std::function<int()> declare_##name(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments)
TALLY_COMMAND(list);
TALLY_COMMAND(describe);
TALLY_COMMAND(train);
TALLY_COMMAND(resume);
TALLY_COMMAND(eval);
TALLY_COMMAND(dump);
TALLY_COMMAND(export);
TALLY_COMMAND(show);
TALLY_COMMAND(gradcheck);
TALLY_COMMAND(info);
TALLY_COMMAND(bench);
TALLY_COMMAND(data);
TALLY_COMMAND(report);
TALLY_COMMAND(sweep);
TALLY_COMMAND(predict);
#undef TALLY_COMMAND

}  // namespace tally
