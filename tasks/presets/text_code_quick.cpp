// Language models in minutes on a CPU, on what `tally prepare OUT --recipe code --vocabulary 1024` makes: about 1.06 M
// parameters, 8.2 M tokens, one epoch.
#include "tasks/preset.hpp"

TALLY_PRESET(text_code_quick, "text", "code-quick", "code, vocabulary 1,024, 128 wide, 4 layers, 2,000 steps",
             "task.length=256 model.layers=4 model.width=128 model.heads=4 model.init=fan-in pe.cope.p-max=64 "
             "optimiser.lr=2e-3 optimiser.beta2=0.95 optimiser.weight-decay=0.1 optimiser.decay=matrices "
             "optimiser.clip=1 optimiser.schedule=linear optimiser.warmup=100 "
             "steps=2000 batch=16 eval-every=500 save-every=250 eval-count=200 eval-batch=16");
