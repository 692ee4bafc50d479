// CoPE's table 7 has cope-alibi without an error in distribution; with the formula as printed it hardly beats guessing
// here. One choice at a time is changed.
#include "tasks/reproduce/choices.hpp"

TALLY_REPRODUCTION(
    cope_alibi, .title = "cope-alibi on flip-flop: which choice makes the difference",
    .source = "CoPE (arXiv 2405.18719), table 7, where all four have 0.0 in distribution",
    .columns = {{"in-distribution", "flip-flop", "in-distribution"}, {"sparse (OOD)", "flip-flop", "ood-sparse"}},
    .rows = {{"as printed: s + m p, m_1 = 1", "cope-alibi", "", {{0.0}, {11.4, 3.4}}},
             {"m_1 = 1/4", "cope-alibi", "pe.first-slope=0.25", {{0.0}, {8.7, 7.6}}},
             {"m_1 = 1/16", "cope-alibi", "pe.first-slope=0.0625", {{0.0}, {17.1, 1.5}}},
             {"learned slopes", "cope-alibi", "pe.slopes=learned", {{0.0}, {11.4, 4.0}}},
             {"s - m p", "cope-alibi", "pe.sign=minus"},
             {"s - m p, m_1 = 1/4", "cope-alibi", "pe.sign=minus pe.first-slope=0.25"},
             {"s - m p, m_1 = 1/16", "cope-alibi", "pe.sign=minus pe.first-slope=0.0625"},
             {"as printed, p at most 64", "cope-alibi", "pe.p-max=64"},
             {"as printed, 4 layers", "cope-alibi", {"model.layers=4", ""}},
             {"as printed, width 128", "cope-alibi", {"model.width=128", "model.width=128"}},
             {"as printed, 4 times the steps",
              "cope-alibi",
              {"steps=4000 eval-every=400 save-every=400", "steps=40000"}},
             {"as printed, gpt2 start values", "cope-alibi", {"model.init=gpt2", ""}},
             {"as printed, learning rate / 3", "cope-alibi", {"optimiser.lr=3.3e-4", "optimiser.lr=1e-4"}}},
    .choices = reproduce::with({{"what is varied", "one choice at a time from the formula as printed",
                                 "sign, first slope, learned slopes, size, steps, start values, rate"}},
                               reproduce::flip_flop_choices()));
