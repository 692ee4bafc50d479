// Even pairs (Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy", arXiv 2207.02098): is the number of
// unequal neighbours odd?
//
// The prompt has n uniform bits, then `=`. The answer is the number of neighbours 01 and 10 mod 2, which is the first
// bit xor the last. That takes two exact look-ups, one of them at a growing distance. n is uniform in 1..N in training,
// and larger than N in ood-long and ood-far:
//
//   0110101=1
//
// The bits and `=` are fed, and the answer is asked at `=`. With `every` the model is also trained to give the answer
// so far at every bit. A model that uses only the last bit is right in 50%. The majority answer, 0, is wrong in 47.5%
// for N = 20 (one bit has no neighbours). Errors are broken down by length.
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

class EvenPairs final : public RunningAnswerTask {
 public:
  EvenPairs(const RunningAnswerOptions& options, const Seeds& seeds)
      : RunningAnswerTask("even-pairs", {"0", "1", "="}, 2, options, seeds) {}

 private:
  std::int32_t next_answer(std::int32_t, const std::vector<std::int32_t>& bits) const override {
    return bits.front() ^ bits.back();
  }
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    even_pairs, RunningAnswerOptions, EvenPairs, "is the number of unequal neighbours odd?",
    "n bits, uniform, then `=`; the answer is the number of unequal neighbours mod 2. Train and in-distribution\n"
    "have 1 to N bits, ood-long up to 5N/2, ood-far up to 25N/2. Score is on the answer, and so is the loss\n"
    "(option: on the answer so far as well). Errors are broken down by length.",
    "Delétang et al. 2023, arXiv 2207.02098");
