// The CoPE paper's model of code (arXiv 2405.18719, section 5.5): LLaMA's parts, 4,096 tokens, on code of one's own.
// The paper's p_max is not stated; its 20.8 million parameters for cope fit p_max 1,024 with a table for each head and
// layer. Ours too: batch and steps, warm-up, decay to a tenth, betas, weight decay, clipping.
#include "tasks/preset.hpp"

TALLY_PRESET(text_code_paper, "text", "code-paper", "code, LLaMA's parts, 256 wide, 4 layers, 4,096 tokens",
             "task.length=4096 model.layers=4 model.width=256 model.heads=8 model.hidden=768 model.activation=swiglu "
             "model.norm=rms model.bias=false model.init=gpt2 pe.cope.p-max=1024 pe.cope.share=none "
             "optimiser.lr=5e-4 optimiser.beta2=0.95 optimiser.weight-decay=0.1 optimiser.decay=matrices "
             "optimiser.clip=1 optimiser.schedule=cosine optimiser.lr-floor=0.1 optimiser.warmup=1000 "
             "steps=50000 batch=16 micro-batch=4 eval-every=2000 save-every=500 eval-batch=4");
