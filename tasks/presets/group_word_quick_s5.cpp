// The word problem of s5, which holds a5: twice its symbols, so more steps at the same length. Untried.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(group_word_quick_s5, group_word_quick, "quick-s5", "s5, 4 elements, 64 wide, 2 layers, 8,000 steps",
                "task.group=s5 task.length=4 steps=8000 batch=64");
