// Missing duplicate with the settings of tasks/presets/chomsky_model.hpp, tested on lengths up to 500.
#include "tasks/preset.hpp"
#include "tasks/presets/chomsky_model.hpp"

TALLY_PRESET(missing_duplicate_paper, "missing-duplicate", "paper",
             "Delétang et al.: words of 1 to 20 bits twice, 64 wide, 5 layers",
             chomsky_model_with("task.max-length=40"));
