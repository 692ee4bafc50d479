// CoPE paper, figure 5: flip-flop error while training.
#include "tasks/reproduce/choices.hpp"

TALLY_REPRODUCTION(
    figure5, .title = "Flip-flop: error while training",
    .source =
        "CoPE (arXiv 2405.18719), figure 5: curves without numbers in print; cope is lowest at 2,500 of 10,000 steps",
    .columns = {{"sparse, after 10%", "flip-flop", "ood-sparse", "", 0.1},
                {"sparse, 20%", "flip-flop", "ood-sparse", "", 0.2},
                {"sparse, 30%", "flip-flop", "ood-sparse", "", 0.3},
                {"sparse, 50%", "flip-flop", "ood-sparse", "", 0.5},
                {"sparse, 70%", "flip-flop", "ood-sparse", "", 0.7},
                {"sparse, at the end", "flip-flop", "ood-sparse"}},
    .rows = {{"absolute", "absolute", "", {}}, {"rope", "rope", "", {}}, {"cope", "cope", "", {}}},
    .choices = reproduce::with({{"sequences of an evaluation on the way",
                                 {"250 of each split; all at the end", "1,000 of each split; all at the end"},
                                 {"the paper does not say",
                                  "the paper does not say; the set of 100,000 would take longer than training"}}},
                               reproduce::flip_flop_choices()),
    .picture = tally::ReproductionPicture::over_steps);
