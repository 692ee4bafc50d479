// CoPE paper, table 3: counting with one, three and five variables. Its table 9 has the deviations.
#include "tasks/reproduction.hpp"

TALLY_REPRODUCTION(table3, .title = "Counting with one, three and five variables",
                   .source = "CoPE (arXiv 2405.18719), table 3, deviations from table 9",
                   .columns = {{"1 variable", "counting", "test"},
                               {"3 variables", "counting", "test", "task.vars=3"},
                               {"5 variables", "counting", "test", "task.vars=5"}},
                   .rows = {{"absolute", "absolute", "", {{5.3, 0.8}, {67.6, 1.5}, {71.5, 1.5}}},
                            {"relative", "relative", "", {{1.1, 0.4}, {17.8, 7.8}, {22.4, 5.1}}},
                            {"rope (not in the paper)", "rope", "", {}},
                            {"cope", "cope", "", {{0.0, 0.0}, {1.2, 2.1}, {7.4, 8.5}}}},
                   .choices = {{"cope's table",
                                {"one per layer, 65 rows, z as printed", "one per layer, 513 rows, z / sqrt(d)"},
                                {"more rows than a short program needs; the authors' code has 513 and z / sqrt(d)",
                                 "the authors' released code"}},
                               {"relative's table",
                                {"one per layer", "one for the whole model"},
                                {"as on the other tasks; the authors' code has one for the whole model",
                                 "the authors' released code"}},
                               {"which epoch counts",
                                {"what stands after the last step", "the last"},
                                {"the training set is as large as all steps together", "the authors' released code"}}},
                   .aliases = {"table9"});
