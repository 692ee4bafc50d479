// CoPE paper, table 2: flip-flop (left half) and selective copy (right half); counting, which the paper has in its
// table 3, stands beside them, so that the three tasks are seen together.
#include "tasks/reproduce/choices.hpp"

TALLY_REPRODUCTION(
    table2, .title = "Flip-flop, selective copy and counting: absolute, rope and cope",
    .source = "CoPE (arXiv 2405.18719), table 2; deviations from table 7; counting from table 3",
    .columns = {{"flip-flop", "flip-flop", "in-distribution"},
                {"flip-flop sparse (OOD)", "flip-flop", "ood-sparse"},
                {"selective copy", "selective-copy", "in-distribution"},
                {"copy dense (OOD)", "selective-copy", "ood-dense"},
                {"copy sparse (OOD)", "selective-copy", "ood-sparse"},
                {"counting", "counting", "test"},
                {.title = "copy, generated", .task = "selective-copy", .split = "in-distribution", .generated = true},
                {.title = "dense, generated", .task = "selective-copy", .split = "ood-dense", .generated = true},
                {.title = "sparse, generated", .task = "selective-copy", .split = "ood-sparse", .generated = true}},
    .rows = {{"absolute", "absolute", "", {{6.8, 6.9}, {21.7, 7.9}, {16.9, 3.7}, {25.6, 3.8}, {85.2, 8.4}, {5.3, 0.8}}},
             {"rope", "rope", "", {{1.8, 3.1}, {20.3, 2.9}, {40.1, 3.5}, {100.0, 0.0}, {100.0, 0.0}, {}}},
             {"cope", "cope", "", {{0.03, 0.06}, {4.9, 4.4}, {0.0, 0.0}, {0.0, 0.0}, {0.004, 0.006}, {0.0, 0.0}}}},
    .choices = reproduce::with(
        reproduce::flip_flop_choices(),
        {{"selective copy: metric", "wrong sequences", "100.0 (0.0) is out of reach for tokens"},
         {"selective copy: learning rate, batch, optimiser",
          {"1e-3 linear to 0, 64, AdamW with decay 0.1 on matrices, gradients clipped at 1",
           "1e-3 linear to 0, 64, AdamW with decay 0.1"},
          "ours; nothing is stated"},
         {"selective copy: p_max",
          {"64", "512"},
          {"the source symbol is at position 16: a table that ends there cannot tell it from those beyond",
           "the source symbol is at position 256: a shorter table cannot tell it from those beyond"}},
         {{"selective copy: absolute beyond 48", "selective copy: absolute beyond 768"},
          "rows that no sequence trained",
          "what the printed 85.2% needs"},
         {"counting: length of programs",
          {"3 to 48 operations", "3 to 512 operations"},
          {"the preset's, in which every encoding counts right; table 3 has longer ones", "the paper's"}}}));
