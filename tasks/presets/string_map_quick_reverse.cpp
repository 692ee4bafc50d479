// Reversing in minutes on a CPU: strings of two letters, in which the source is found by its position alone.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(string_map_quick_reverse, string_map_quick, "quick-reverse",
                "1 to 20 of 2 letters backwards, 64 wide, 2 layers, 1,500 steps", "task.map=reverse");
