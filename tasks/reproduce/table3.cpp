// CoPE paper, table 3: counting with one, three and five variables. Its table 9 has the deviations.
#include "tasks/reproduction.hpp"

namespace tally {
namespace {

// Programs of the quick preset, of up to 48 operations, are counted right by every encoding, of three and five
// variables too (0.1 to 5% wrong).
const std::string longer = "task.max-operations=96 task.max-tokens=128";

}  // namespace
}  // namespace tally

TALLY_REPRODUCTION(table3, .title = "Counting with one, three and five variables",
                   .source = "CoPE (arXiv 2405.18719), table 3, deviations from table 9",
                   .columns = {{"1 variable", "counting", "test", {longer, ""}},
                               {"3 variables", "counting", "test", {longer + " task.vars=3", "task.vars=3"}},
                               {"5 variables", "counting", "test", {longer + " task.vars=5", "task.vars=5"}}},
                   .rows = {{"absolute", "absolute", "", {{5.3, 0.8}, {67.6, 1.5}, {71.5, 1.5}}},
                            {"relative", "relative", "", {{1.1, 0.4}, {17.8, 7.8}, {22.4, 5.1}}},
                            {"rope (not in the paper)", "rope", "", {}},
                            {"cope", "cope", "", {{0.0, 0.0}, {1.2, 2.1}, {7.4, 8.5}}}},
                   .choices = {{"length of programs",
                                {"3 to 96 operations", "3 to 512 operations"},
                                {"in the preset's, of up to 48, every encoding counts right", "the paper's"}},
                               {"cope's table",
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
