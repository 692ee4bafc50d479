// CoPE paper, table 3: counting with one, three and five variables. Its table 9 has the deviations.
#include "tasks/reproduce/choices.hpp"

using tally::reproduce::longer_programs;
using tally::reproduce::longer_table;

TALLY_REPRODUCTION(table3, .title = "Counting with one, three and five variables",
                   .source = "CoPE (arXiv 2405.18719), table 3, deviations from table 9",
                   .columns = {{"1 variable", "counting", "test", {longer_programs(), ""}},
                               {"3 variables", "counting", "test", {longer_programs(" task.vars=3"), "task.vars=3"}},
                               {"5 variables", "counting", "test", {longer_programs(" task.vars=5"), "task.vars=5"}}},
                   .rows = {{"absolute", "absolute", "", {{5.3, 0.8}, {67.6, 1.5}, {71.5, 1.5}}},
                            {"relative", "relative", "", {{1.1, 0.4}, {17.8, 7.8}, {22.4, 5.1}}},
                            {"rope (not in the paper)", "rope", "", {}},
                            {"cope", "cope", {longer_table, ""}, {{0.0, 0.0}, {1.2, 2.1}, {7.4, 8.5}}}},
                   .choices = reproduce::counting_choices(), .aliases = {"table9"});
