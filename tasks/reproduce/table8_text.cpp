// CoPE paper, table 8: variants of CoPE on a language model. table8.cpp has the same variants on flip-flop.
#include "tasks/reproduce/texts.hpp"

TALLY_REPRODUCTION(
    table8_text, .title = "Variants of CoPE, language models of prose: perplexity",
    .source = "CoPE (arXiv 2405.18719), table 8: Wikitext-103",
    .columns = {{.title = "validation", .task = "text", .split = "validation", .text = &reproduce::prose},
                {.title = "test", .task = "text", .split = "test", .text = &reproduce::prose}},
    .rows = {{"absolute", "absolute", "", {{23.96}, {24.87}}},
             {"relative", "relative", "", {{22.90}, {23.81}}},
             {"cope, one table for all layers", "cope", {"pe.share=layers", ""}, {{22.55}, {23.46}}},
             {"cope, a table a layer", "cope", {"", "pe.share=heads"}, {{22.56}, {23.58}}},
             {"cope + relative", "cope+relative", "", {{22.31}, {23.23}}},
             {"cope, val-gates", "cope", "pe.gates=values", {{22.40}, {23.33}}},
             {"cope, sep-keys", "cope", "pe.gates=sep-keys", {{22.39}, {23.18}}},
             {"cope, p_max 16", "cope", "pe.p-max=16", {{22.45}, {23.22}}},
             {"cope, p_max = context (paper: 1024)", "cope", {"pe.p-max=256", "pe.p-max=1024"}, {{22.46}, {23.31}}},
             {"cope-alibi, ALiBi's slopes", "cope-alibi", "pe.slopes=alibi", {{24.16}, {25.09}}}},
    .choices = {
        reproduce::prose_choice(),
        reproduce::windows_choice(),
        {"table of the variants", {"one for each layer", "one for all layers"}, {"the preset's", "the paper's base"}}});
