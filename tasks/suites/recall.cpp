// What has to be found again: by its key, by how often the key came, by kind and distance.
#include "tasks/suite.hpp"

TALLY_SUITE(recall, "recall: by key, the latest of a key, the N-th last, the last of a kind, far among decoys",
            "mqar/quick mqar-update/quick passkey/quick n-back/quick last-x/quick");
