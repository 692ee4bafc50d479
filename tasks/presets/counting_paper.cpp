// Counting as in the CoPE paper (arXiv 2405.18719, section 5.3) and the authors' released code: 100 epochs over 10,000
// programs. An epoch is 157 steps, the last of them with the 16 programs left over: 15,700 steps. One variable; the
// paper's other columns are task.vars 3 and 5.
#include "tasks/preset.hpp"

TALLY_PRESET(counting_paper, "counting", "paper", "CoPE paper, section 5.3: 256 wide, 4 layers, 100 epochs",
             "model.hidden=1024 model.norm-place=post model.activation=relu model.dropout=0.1 model.tied=true "
             "model.final-norm=false model.init=authors "
             "optimiser.name=adam optimiser.lr=7e-5 "
             "pe.cope.p-max=512 pe.cope.position-scale=sqrt-d pe.relative.share=model "
             "steps=15700 batch=64 eval-every=785 save-every=157 eval-batch=50");
