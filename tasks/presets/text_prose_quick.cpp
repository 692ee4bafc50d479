// The same on what `tally prepare OUT --recipe prose --vocabulary 1024` makes: 4.1 M tokens, one epoch.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(text_prose_quick, text_code_quick, "prose-quick",
                "English essays, vocabulary 1,024, 128 wide, 4 layers, 1,000 steps",
                "steps=1000 eval-every=250 save-every=250");
