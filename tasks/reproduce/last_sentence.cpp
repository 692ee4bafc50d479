// CoPE paper, tables 1 and 6, as a task: how often does a word occur in the last sentence? The paper asks two chat
// models one such question each, which leaves no number to stand beside; the encodings are those of its other tables.
#include "tasks/reproduction.hpp"

TALLY_REPRODUCTION(
    last_sentence, .title = "Counting a word in the last sentence: absolute, relative, rope and cope",
    .source = "CoPE (arXiv 2405.18719), tables 1 and 6: two chat models, a question each; no errors in print",
    .columns = {{"in-distribution", "last-sentence", "in-distribution"},
                {"more sentences", "last-sentence", "ood-more"},
                {"longer sentences", "last-sentence", "ood-long"}},
    .rows = {{"absolute", "absolute"}, {"relative", "relative"}, {"rope", "rope"}, {"cope", "cope"}},
    .choices = {{"law of the text", "2 to 6 sentences of 2 to 12 words, 2 names and 16 fillers",
                 "ours: the paper has single texts"},
                {"model and training", "those of the preset", "ours: the paper trains nothing on it"}},
    .published = false);
