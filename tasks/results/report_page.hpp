// A report as one HTML page: tables, final errors as dots, curves with spread, and configuration and machine of every
// run.
#pragma once

#include <string>

#include "tasks/results/report.hpp"

namespace tally {

// The data of the page. Each run has its name, seed, state, machines and configuration, and its error counts at the end
// and during training. If it has an inspect.html, its path relative to `folder`, the folder of the page, is included.
JsonValue report_page_json(const Report& report, const std::string& folder);

// The complete page (tasks/pages/report.html), which needs no network and no other file.
std::string report_page(const Report& report, const std::string& folder);

}  // namespace tally
