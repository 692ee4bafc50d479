// Bytes alone: what `tally prepare OUT --recipe prose --vocabulary 257` makes.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(text_prose_bytes, text_prose_quick, "prose-bytes",
                "English essays, bytes, 512 of them, 128 wide, 4 layers", "task.length=512 batch=8");
