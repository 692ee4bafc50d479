// The tasks of the CoPE paper, reduced; the last sentence stands for its tables 1 and 6.
#include "tasks/suite.hpp"

TALLY_SUITE(paper, "the CoPE paper's tasks, reduced: a last write, a copy, a count, a last sentence",
            "flip-flop/quick selective-copy/quick counting/quick last-sentence/quick");
