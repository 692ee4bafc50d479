// What Delétang et al. 2023 (arXiv 2207.02098) train on all their tasks: 5 layers, 8 heads, width 64, dropout 0.1, Adam
// at 1e-3, gradients clipped at 1, batch 128. Their model is an encoder without a causal mask, this one a decoder:
// orders can be compared, numbers cannot. 200,000 steps are those of DAPE (arXiv 2405.14722), which trains on the same
// tasks; p_max is ours.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// Those settings and `more`.
inline std::string chomsky_model_with(std::string_view more) {
  return "model.layers=5 model.width=64 model.heads=8 model.dropout=0.1 optimiser.name=adam optimiser.lr=1e-3 "
         "optimiser.clip=1 pe.cope.p-max=64 steps=200000 batch=128 eval-every=10000 eval-count=250 save-every=10000 "
         "eval-batch=50 " +
         std::string(more);
}

}  // namespace tally
