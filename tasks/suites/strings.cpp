// What has to be written symbol by symbol, or found by its position.
#include "tasks/suite.hpp"

TALLY_SUITE(strings, "strings: copied, backwards, a missing twin, sums",
            "string-map/quick string-map/quick-reverse missing-duplicate/quick addition/quick");
