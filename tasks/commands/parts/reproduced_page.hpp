// The page that `tally reproduce --out` writes: a Markdown table with the evidence behind it.
#pragma once

#include <string>
#include <vector>

#include "tasks/results/reproduction.hpp"

namespace tally {

struct ReproducedPage {
  std::string path;     // path of the page
  std::string command;  // that makes it
  std::string picture;  // next to the page; empty: none
  std::string work;     // the runs that this call trained
};

// The origin of the table, then every run with its counts and machine. Links to a file reading.md next to the page.
std::string page_text(const Reproduced& result, const ReproducedPage& page);

// The words of a command, quoted for a shell if needed.
std::string command_text(const std::vector<std::string>& words);

}  // namespace tally
