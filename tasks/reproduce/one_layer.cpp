// The cheap flip-flop comparison of the PaTH paper: one layer, two heads, width 64.
#include "tasks/reproduce/choices.hpp"

namespace tally {
namespace {

const Scaled one_layer{"model.layers=1 model.heads=2", "model.layers=1 model.heads=2 model.width=64"};

}  // namespace
}  // namespace tally

TALLY_REPRODUCTION(one_layer, .title = "Flip-flop with one layer, two heads and width 64",
                   .source = "PaTH attention (arXiv 2505.16381), table 1",
                   .columns = {{"in-distribution", "flip-flop", "in-distribution"},
                               {"sparse", "flip-flop", "ood-sparse"},
                               {"dense", "flip-flop", "ood-dense"}},
                   .rows = {{"rope", "rope", one_layer, {{6.9}, {40.3}, {0.01}}},
                            {"stick-breaking", "stick-breaking", one_layer, {{9.6}, {38.9}, {0.0}}},
                            {"fox", "fox", one_layer, {{8.3}, {36.3}, {0.0}}},
                            {"path", "path", one_layer, {{0.0}, {0.0001}, {0.0}}},
                            {"cope (not in the paper)", "cope", one_layer},
                            {"tra (not in the paper)", "tra", one_layer},
                            {"selective (not in the paper)", "selective", one_layer},
                            {"none (not in the paper)", "none", one_layer}},
                   .choices = reproduce::with({{"training",
                                                {"that of the preset quick", "as the CoPE paper's flip-flop"},
                                                "that paper's own settings are not at hand"}},
                                              reproduce::flip_flop_choices()));
