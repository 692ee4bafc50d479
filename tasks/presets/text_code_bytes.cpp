// Bytes alone: what `tally prepare OUT --recipe code --vocabulary 257` makes.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(text_code_bytes, text_code_quick, "code-bytes", "code, bytes, 512 of them, 128 wide, 4 layers",
                "task.length=512 batch=8");
