// CoPE paper, table 5: language models on Wikitext-103.
#include "tasks/reproduce/texts.hpp"

TALLY_REPRODUCTION(
    table5, .title = "Language models of prose: perplexity",
    .source = "CoPE (arXiv 2405.18719), table 5: Wikitext-103; the other encodings are ours",
    .columns = {{.title = "validation", .task = "text", .split = "validation", .text = &reproduce::prose},
                {.title = "test", .task = "text", .split = "test", .text = &reproduce::prose}},
    .rows = {{"absolute", "absolute", "", {{23.96}, {24.87}}},
             {"relative", "relative", "", {{22.90}, {23.81}}},
             {"cope", "cope", "", {{22.55}, {23.46}}},
             {"cope + relative", "cope+relative", "", {{22.31}, {23.23}}},
             {"none", "none"},
             {"rope", "rope"},
             {"alibi", "alibi"},
             {"fox", "fox"},
             {"stick-breaking", "stick-breaking"},
             {"cope + rope", "cope+rope"}},
    .choices = {reproduce::prose_choice(),
                reproduce::windows_choice(),
                {"cope's tables",
                 {"one for each layer", "one for all layers"},
                 {"the preset; table 8 has both", "the paper's base"}}});
