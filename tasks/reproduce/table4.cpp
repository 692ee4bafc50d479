// CoPE paper, table 4: counting, tested on programs with more or fewer passes than trained on. Its table 10 has the
// deviations.
#include "tasks/reproduce/choices.hpp"

using tally::reproduce::longer_programs;
using tally::reproduce::longer_table;

TALLY_REPRODUCTION(table4, .title = "Counting, out of distribution: other weights of pass than the 50 trained on",
                   .source = "CoPE (arXiv 2405.18719), table 4, deviations from table 10",
                   .columns = {{"pass weight 50", "counting", "test", {longer_programs(), ""}},
                               {"pass weight 100", "counting", "ood-long", {longer_programs(), ""}},
                               {"pass weight 10", "counting", "ood-short", {longer_programs(), ""}}},
                   .rows = {{"relative", "relative", "", {{1.1, 0.4}, {8.8, 1.1}, {34.1, 2.5}}},
                            {"rope (not in the paper)", "rope", "", {}},
                            {"cope", "cope", {longer_table, ""}, {{0.0, 0.0}, {0.0, 0.0}, {4.0, 4.1}}}},
                   .choices = reproduce::with({{"the same models as table 3", "yes",
                                                "the paper's in-distribution column is that of table 3"}},
                                              reproduce::counting_choices()),
                   .aliases = {"table10"});
