// Everything that has a suite.
#include "tasks/suite.hpp"

TALLY_SUITE(all, "all tasks of all suites", "paper recall state strings");
