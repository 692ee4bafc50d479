// A night on a CPU, or a GPU: on what `tally prepare OUT --recipe code --vocabulary 4096` makes.
#include "tasks/preset.hpp"

TALLY_PRESET(text_code_medium, "text", "code-medium", "code, vocabulary 4,096, 256 wide, 6 layers, 5,000 steps",
             "task.length=512 model.layers=6 model.width=256 model.heads=8 model.dropout=0.1 model.init=fan-in "
             "pe.cope.p-max=64 optimiser.lr=2e-3 optimiser.beta2=0.95 optimiser.weight-decay=0.1 "
             "optimiser.decay=matrices optimiser.clip=1 optimiser.schedule=linear optimiser.warmup=100 "
             "steps=5000 batch=32 eval-every=500 save-every=250 eval-count=200 eval-batch=16");
