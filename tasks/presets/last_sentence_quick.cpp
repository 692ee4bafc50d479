// Counting in the last sentence in minutes on a CPU.
//
// Measured: tests/results/last-sentence.md
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(last_sentence_quick, "last-sentence", "quick", "2 to 6 sentences, 64 wide, 2 layers, 1,500 steps",
             small_model_with("optimiser.lr=2e-3 pe.cope.p-max=16 steps=1500 batch=32 eval-every=300 save-every=300"));
