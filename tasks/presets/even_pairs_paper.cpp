// Even pairs with the settings of tasks/presets/chomsky_model.hpp, tested on lengths up to 500.
#include "tasks/preset.hpp"
#include "tasks/presets/chomsky_model.hpp"

TALLY_PRESET(even_pairs_paper, "even-pairs", "paper", "Delétang et al.: 1 to 40 bits, 64 wide, 5 layers",
             chomsky_model_with("task.max-length=40"));
