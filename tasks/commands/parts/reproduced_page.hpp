// The page that `tally reproduce --out` writes: Markdown, a table with all that anyone needs to judge it.
#pragma once

#include <string>
#include <vector>

#include "tasks/results/reproduction.hpp"

namespace tally {

struct ReproducedPage {
  std::string path;     // where it will lie
  std::string command;  // that makes it
  std::string picture;  // beside it; empty: none
  std::string work;     // what this call trained; empty where it only shows what is there
};

// How the table came about, then every run with counts and machine. Where a file named reading.md lies beside the page
// and a heading of it leads to the page, the page leads back to what is said there.
std::string page_text(const Reproduced& result, const ReproducedPage& page);

// Words of a command as a shell takes them: those with other characters than names and numbers have in quotes.
std::string command_text(const std::vector<std::string>& words);

}  // namespace tally
