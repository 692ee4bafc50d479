// What has to be carried along: states of groups and of finite automata.
#include "tasks/suite.hpp"

TALLY_SUITE(state, "state: products in s3 and a5, parity, pairs, a walk, arithmetic",
            "group-word/quick group-word/quick-a5 parity/quick even-pairs/quick cycle-navigation/quick "
            "modular-arithmetic/quick");
