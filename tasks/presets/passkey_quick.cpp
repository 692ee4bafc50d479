// The passkey in minutes on a CPU, at the task's own lengths: 128 bytes, then 256 and 512.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(passkey_quick, "passkey", "quick", "2 statements in 128 bytes, 64 wide, 2 layers, 2,000 steps",
             small_model_with("optimiser.lr=2e-3 pe.cope.p-max=64 steps=2000 batch=32 eval-every=400 save-every=400"));
