// The word problem of a5, whose products no shortcut gives: words of 4 elements, more steps than s3 takes. Untried.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(group_word_quick_a5, group_word_quick, "quick-a5", "a5, 4 elements, 64 wide, 2 layers, 5,000 steps",
                "task.group=a5 task.length=4 steps=5000 batch=64");
