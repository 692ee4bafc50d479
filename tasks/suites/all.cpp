// Everything that has a suite, then every other quick preset.
#include "tasks/suite.hpp"

TALLY_SUITE(all, "all tasks of all suites, and every other quick preset", "paper recall state strings */quick");
