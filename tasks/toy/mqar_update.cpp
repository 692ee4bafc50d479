// Associative recall with keys that are assigned again (the "forgetting" form of the repository of Zoology, Arora et
// al. 2023, arXiv 2312.04927). It is like mqar, except that U of the K keys get another value before any is asked for.
// tasks/data/toy_task.hpp defines the distribution.
//
//   k3 v7 k1 v0 k3 v2 k1:v0 . k3:v2 .          K = 2, U = 1, T = 10, answers behind `:`
//
// The answer is the latest value, which may also be the value of another key. A model that answers with the first value
// is wrong in U/K of the queries. ood-all has U = K, so "the second half of the context" is enough; ood-long has 2T.
// The released settings are V 8192, U 4, (K, T) = (4, 64), (9, 128), (16 to 36, 256), and random filler. No published
// table of results is known.
//
// In the released generator an update avoids the value of another key of the context, so that one in V - V/2 updates
// repeats the old value. Here it never does. With K = U = 4, its first setting, all keys are updated. Updates never
// come between first assignments, in either generator.
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct MqarUpdateOptions final : OptionsOf<MqarUpdateOptions> {
  RecallOptions recall{.pairs = 9, .length = 128};
  std::int64_t updates = 4;

  void visit(OptionVisitor& visitor) override {
    recall.visit(visitor);
    visitor.integer("updates", updates, "keys with a second value in train and in-distribution; all K in ood-all", 1,
                    1 << 16);
  }
};

class MqarUpdate final : public Recall {
 public:
  MqarUpdate(const MqarUpdateOptions& options, const Seeds& seeds)
      : Recall("mqar-update", options.recall, options.updates, seeds) {}
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    mqar_update, MqarUpdateOptions, MqarUpdate, "associative recall with reassigned keys: give the latest value",
    "K pairs of a key and a value, then new values for U of the keys; then each key once more, with its latest\n"
    "value asked for there. Other positions hold a filler (option: any symbol). Loss and score are on the queries.\n"
    "ood-all assigns all keys anew, ood-long has twice the length.",
    "after Arora et al. 2023 (Zoology), arXiv 2312.04927");
