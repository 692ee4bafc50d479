// --error of the commands that show errors of several runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tasks/command_line/command.hpp"
#include "tasks/results/report.hpp"

namespace tally {

inline void add_error_option(CommandLine& line, std::string* target, std::vector<std::string> needs = {}) {
  line.add("--error", target, "what is wrong: token, sequence, or the one by which the task is usually judged (task)",
           {.allowed = {"task", "token", "sequence"}, .needs = std::move(needs)});
}

inline ErrorKind error_kind(const std::string& text) {
  return text == "token" ? ErrorKind::token : text == "sequence" ? ErrorKind::sequence : ErrorKind::by_task;
}

}  // namespace tally
