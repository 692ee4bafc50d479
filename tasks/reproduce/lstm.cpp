// The sanity anchor of Liu et al. 2023: a recurrent network with one layer makes no error on flip-flop, so the task can
// be learned from its training distribution, and what transformers get wrong is theirs.
#include "tasks/reproduce/choices.hpp"

TALLY_REPRODUCTION(lstm, .title = "Flip-flop: an LSTM of one layer",
                   .source = "Liu et al. 2023 (arXiv 2306.00946): 0 errors on all splits",
                   .columns = {{"in-distribution", "flip-flop", "in-distribution"},
                               {"sparse", "flip-flop", "ood-sparse"},
                               {"dense", "flip-flop", "ood-dense"}},
                   .rows = {{"LSTM, one layer",
                             "none",
                             {"model.kind=lstm model.layers=1", "model.kind=lstm model.layers=1 model.width=128"},
                             {{0.0}, {0.0}, {0.0}}}},
                   .choices = reproduce::with({{"width", {"64", "128"}, "ours"},
                                               {"training", "that of the transformers",
                                                "one program for both; theirs has a learning rate of its own"}},
                                              reproduce::flip_flop_data_choices()));
