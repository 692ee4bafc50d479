// What has to be carried along: states of groups and of finite automata.
#include "tasks/suite.hpp"

TALLY_SUITE(state, "state: products in s3, a5 and s5, parity, pairs, a walk, arithmetic",
            "group-word/quick group-word/quick-a5 group-word/quick-s5 parity/quick even-pairs/quick "
            "cycle-navigation/quick modular-arithmetic/quick");
