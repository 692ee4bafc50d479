// In CoPE's table 3 three variables take cope 1.2% and relative 17.8%; at the quick scale both count long programs less
// well, and nearer to each other. One choice at a time is changed, for both.
#include "tasks/reproduce/choices.hpp"

namespace tally {
namespace {

struct Change {
  const char* label;
  std::string cope, relative;  // settings; those of table 3 where nothing is changed
};

std::vector<ReproductionRow> one_at_a_time() {
  const std::string programs = reproduce::longer_programs(" task.vars=3");
  const std::string longest = "task.max-operations=192 task.max-tokens=256 task.vars=3 eval-every=500";
  const auto both = [&](const char* label, const std::string& more) {
    return Change{label, concat(reproduce::longer_table, " ", programs, more), programs + more};
  };
  std::vector<ReproductionRow> rows;
  for (const Change& change :
       {both("as in table 3", ""), Change{"programs of up to 48 operations", "task.vars=3", "task.vars=3"},
        Change{"programs of up to 192 operations", "pe.p-max=256 " + longest, longest},
        both("4,000 steps", " task.train-count=256000 steps=4000 eval-every=1000"),
        both("16 epochs of 6,000 programs", " task.train-count=6000 eval-every=500"),
        both("learning rate / 3", " optimiser.lr=1e-3"), both("norm after the residual", " model.norm-place=post")}) {
    rows.push_back({concat("cope: ", change.label), "cope", change.cope});
    rows.push_back({concat("relative: ", change.label), "relative", change.relative});
  }
  rows.push_back({"cope: z / sqrt(d)", "cope", both("", " pe.position-scale=sqrt-d").cope});
  rows.push_back({"relative: one table for the whole model", "relative", both("", " pe.share=model").relative});
  return rows;
}

}  // namespace
}  // namespace tally

TALLY_REPRODUCTION(
    counting_choices, .title = "Counting with three variables: which choice makes the difference",
    .source =
        "CoPE (arXiv 2405.18719), table 3: relative 17.8 (7.8), cope 1.2 (2.1), at the setting of the preset paper",
    .columns = {{"test", "counting", "test"}}, .rows = one_at_a_time(),
    .choices = reproduce::with(
        {{"what is varied", "one choice at a time from the row 'as in table 3'",
          "length of programs, steps, programs, rate, place of the norm, scale of z, sharing of a table"},
         {"4,000 steps", "with as many programs as they take", "so that no program is seen twice, as in table 3"}},
        reproduce::counting_choices()),
    .published = false);
