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
  std::string work;     // the runs that this call trained; empty if it only shows existing results
};

// The origin of the table, then every run with its counts and machine. If a file reading.md next to the page has a
// heading that links to the page, the page links back to that heading.
std::string page_text(const Reproduced& result, const ReproducedPage& page);

// The words of a command, quoted for a shell if needed.
std::string command_text(const std::vector<std::string>& words);

}  // namespace tally
