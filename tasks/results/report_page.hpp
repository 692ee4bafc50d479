// A report as one HTML page: tables, final errors as dots, curves with spread, configuration and machine of every run.
#pragma once

#include <string>

#include "tasks/results/report.hpp"

namespace tally {

// What the page is made of. Of each run: its name, seed, state, machines and configuration, errors at the end and on
// the way as counts, and the way from `folder`, in which the page will lie, to the run's inspect.html where it has one.
JsonValue report_page_json(const Report& report, const std::string& folder);

// The page itself (tasks/pages/report.html), which needs no network and no other file.
std::string report_page(const Report& report, const std::string& folder);

}  // namespace tally
