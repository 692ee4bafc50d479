// CoPE paper, table 4: counting, tested on programs with more or fewer passes than trained on. Its table 10 has the
// deviations.
#include "tasks/reproduction.hpp"

TALLY_REPRODUCTION(table4, .title = "Counting, out of distribution: other weights of pass than the 50 trained on",
                   .source = "CoPE (arXiv 2405.18719), table 4, deviations from table 10",
                   .columns = {{"pass weight 50", "counting", "test"},
                               {"pass weight 100", "counting", "ood-long"},
                               {"pass weight 10", "counting", "ood-short"}},
                   .rows = {{"relative", "relative", "", {{1.1, 0.4}, {8.8, 1.1}, {34.1, 2.5}}},
                            {"rope (not in the paper)", "rope", "", {}},
                            {"cope", "cope", "", {{0.0, 0.0}, {0.0, 0.0}, {4.0, 4.1}}}},
                   .choices = {{"the same models as table 3", "yes",
                                "the paper's in-distribution column is that of table 3"}},
                   .aliases = {"table10"});
