// Parity (Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy", arXiv 2207.02098): is the number of ones
// odd?
//
// The prompt has n uniform bits, then `=`. The answer is the number of ones mod 2. n is uniform in 1..N in training,
// and larger than N in ood-long and ood-far:
//
//   0110101=0
//
// The bits and `=` are fed, and the answer is asked at `=`. With `every` the model is also trained to give the parity
// so far at every bit. This makes the task learnable for some encodings, so results must report which was used. The
// majority answer is wrong in 50%. Published scores are the mean over lengths, with equal weight for each; errors are
// therefore broken down by length.
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

class Parity final : public RunningAnswerTask {
 public:
  Parity(const RunningAnswerOptions& options, const Seeds& seeds)
      : RunningAnswerTask("parity", {"0", "1", "="}, 2, options, seeds) {}

 private:
  std::int32_t next_answer(std::int32_t parity, const std::vector<std::int32_t>& bits) const override {
    return parity ^ bits.back();
  }
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    parity, RunningAnswerOptions, Parity, "is the number of ones odd?",
    "n bits, uniform, then `=`; the answer is the number of ones mod 2. Train and in-distribution have 1 to N bits,\n"
    "ood-long up to 5N/2, ood-far up to 25N/2. Score is on the answer, and so is the loss (option: on the parity so\n"
    "far as well). Errors are broken down by length.",
    "Delétang et al. 2023, arXiv 2207.02098");
