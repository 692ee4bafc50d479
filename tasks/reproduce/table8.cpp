// CoPE paper, table 8: variants of CoPE on a language model. Here the same variants on flip-flop, beside the paper's
// perplexities: another task, so only which variants matter can be compared.
#include "tasks/reproduce/choices.hpp"

TALLY_REPRODUCTION(
    table8, .title = "Variants of CoPE on flip-flop: the toy counterpart of the paper's ablation on Wikitext-103",
    .source = "CoPE (arXiv 2405.18719), table 8: perplexity of a language model, not an error",
    .columns = {{"in-distribution", "flip-flop", "in-distribution"},
                {"sparse (OOD)", "flip-flop", "ood-sparse"},
                {"dense (OOD)", "flip-flop", "ood-dense"},
                {.title = "paper, Wikitext-103, test", .task = "", .split = "", .unit = "perplexity"}},
    .rows = {{"absolute", "absolute", "", {{}, {}, {}, {24.87}}},
             {"relative", "relative", "", {{}, {}, {}, {23.81}}},
             {"cope", "cope", "", {{}, {}, {}, {23.58}}},
             {"cope, one table for all layers", "cope", "pe.share=layers", {{}, {}, {}, {23.46}}},
             {"cope, a table a head (not in the paper)", "cope", "pe.share=none", {}},
             {"cope + relative", "cope+relative", "", {{}, {}, {}, {23.23}}},
             {"cope, val-gates", "cope", "pe.gates=values", {{}, {}, {}, {23.33}}},
             {"cope, sep-keys", "cope", "pe.gates=sep-keys", {{}, {}, {}, {23.18}}},
             {"cope, p_max 16", "cope", "pe.p-max=16", {{}, {}, {}, {23.22}}},
             {"cope, p_max = length (paper: 1024)", "cope", {"pe.p-max=128", "pe.p-max=512"}, {{}, {}, {}, {23.31}}},
             {"cope-alibi, ALiBi's slopes", "cope-alibi", "pe.slopes=alibi", {{}, {}, {}, {25.09}}}},
    .choices = reproduce::with({{"the paper's base", "a table for all layers; here a table a layer",
                                 "its row 'tables per layer' is our default"}},
                               reproduce::flip_flop_choices()));
