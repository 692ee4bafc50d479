// The CoPE paper's language models (arXiv 2405.18719, section 5.4, tables 5 and 8): GPT-2's shape on Wikitext-103 with
// GPT-2's tokenizer (50,257 tokens), 100 epochs. What the paper does not say is ours: AdamW 2.5e-4 with betas 0.9 and
// 0.95, cosine to a tenth after 2,000 steps of warm-up, clipping at 1, dropout 0.1, weight decay 0.1 on matrices.
#include "tasks/preset.hpp"

TALLY_PRESET(text_wikitext_paper, "text", "wikitext-paper", "Wikitext-103, GPT-2's shape, 1,024 tokens, 100 epochs",
             "task.length=1024 model.layers=12 model.width=768 model.heads=12 model.tied=true model.init=gpt2 "
             "model.dropout=0.1 pe.cope.p-max=64 pe.cope.share=layers pe.relative.share=model "
             "optimiser.lr=2.5e-4 optimiser.beta2=0.95 optimiser.weight-decay=0.1 optimiser.decay=matrices "
             "optimiser.clip=1 optimiser.schedule=cosine optimiser.lr-floor=0.1 optimiser.warmup=2000 "
             "steps=180000 batch=64 micro-batch=8 eval-every=1800 save-every=900 eval-batch=8");
