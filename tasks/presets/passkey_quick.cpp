// The passkey in minutes on a CPU, at the task's own lengths: 128 bytes, then 256 and 512.
//
// Seen with cope, seed 1, stopped before its end: 27.3% of the digits wrong in distribution after 1,600 steps, 54.5%
// with more decoys, 32.8% and 36.6% in longer texts, all still falling.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(passkey_quick, "passkey", "quick", "2 statements in 128 bytes, 64 wide, 2 layers, 2,000 steps",
             small_model_with("optimiser.lr=2e-3 pe.cope.p-max=64 steps=2000 batch=32 eval-every=400 save-every=400"));
