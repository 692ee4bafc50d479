// Multi-query associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927, figure 2): K pairs of a key and a
// value, then each key once more at a random position, where its value is asked for. tasks/data/toy_task.hpp defines
// the distribution.
//
//   k3 v7 k1 v0 k1:v0 . . . k3:v7 .          K = 2, T = 10, fillers as points, answers behind `:`
//
// ood-dense has 2K pairs in the same T (if 8K <= T), ood-long K pairs in 2T. Keys of the context are only at even
// positions, which learned absolute positions learn at once. In-distribution error on its own therefore ranks them too
// high. One guess is wrong in 1 - 1/(V - V/2). The first query asks for the first pair more often than by chance: 3
// times for K = 16.
//
// The published settings are V 8192 with (K, T) = (4, 64), (8, 128) and (16, 256), each trained and tested separately
// on 100,000 and 3,000 sequences (figure 2; the preset `paper` is the last of them). The later mixture of the code is
// trained on (4, 64), (8, 128) and (16 / 32 / 64, 256) together, and tested from (4, 64) to (256, 1024): task.pairs and
// task.length give each.
//
// The released generator has three faults. With several passes over the context it counts the size of the context
// twice, and fails. The file of figure 2 sets its power law by options that the generator no longer has. It counts
// slots from the end of the context, so the distance from a query to its key follows no power law (here too, because
// all published numbers use it). Random filler, an option of both generators, may repeat a key of the sequence followed
// by a token other than its value.
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct MqarOptions final : OptionsOf<MqarOptions> {
  RecallOptions recall;

  void visit(OptionVisitor& visitor) override { recall.visit(visitor); }
};

class Mqar final : public Recall {
 public:
  Mqar(const MqarOptions& options, const Seeds& seeds) : Recall("mqar", options.recall, 0, seeds) {}
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    mqar, MqarOptions, Mqar, "multi-query associative recall: give the value of a key",
    "K pairs of a key and a value, all different; then each key once more, at positions that a power law prefers to\n"
    "be near the pairs, with its value asked for there. Other positions hold a filler (option: any symbol). Loss and\n"
    "score are on the queries. ood-dense has 2K pairs (if they fit), ood-long twice the length.",
    "Arora et al. 2023 (Zoology), arXiv 2312.04927");
