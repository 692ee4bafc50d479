// The tasks of the CoPE paper, reduced.
#include "tasks/suite.hpp"

TALLY_SUITE(paper, "the CoPE paper's tasks, reduced: a last write, a copy, a count",
            "flip-flop/quick selective-copy/quick counting/quick");
