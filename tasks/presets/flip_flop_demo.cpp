// What tasks/demo.sh runs: the preset quick with fewer sequences at the end, so that several encodings and seeds are
// trained and evaluated in a few minutes on two cores. 7,000 to 9,000 reads a split tell 1% from 2%.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(flip_flop_demo, flip_flop_quick, "demo", "the preset quick with fewer sequences at the end",
                "task.eval-count=1000 task.dense-count=300 eval-count=300");
