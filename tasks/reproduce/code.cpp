// CoPE paper, section 5.5: language models of code.
#include "tasks/reproduce/texts.hpp"

TALLY_REPRODUCTION(
    code, .title = "Language models of code: perplexity",
    .source = "CoPE (arXiv 2405.18719), section 5.5: test perplexity of four encodings; the others are ours",
    .columns = {{.title = "test", .task = "text", .split = "test", .text = &reproduce::code},
                {.title = "validation", .task = "text", .split = "validation", .text = &reproduce::code}},
    .rows = {{"none", "none"},
             {"absolute", "absolute", "", {{4.7}}},
             {"rope", "rope", "", {{4.1}}},
             {"relative", "relative"},
             {"cope", "cope", "", {{3.9}}},
             {"cope + rope", "cope+rope", "", {{4.0}}},
             {"alibi", "alibi"},
             {"fox", "fox"},
             {"stick-breaking", "stick-breaking"}},
    .choices = {{"text",
                 {"Go's library, vocabulary 1,024, one epoch", "of your own; the paper's is not public"},
                 {"small, free, a Debian package: orders can be compared, perplexities cannot", "nothing is stated"}},
                reproduce::windows_choice()});
