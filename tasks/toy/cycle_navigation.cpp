// Cycle navigation (Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy", arXiv 2207.02098): where does a
// walk on a cycle of five states end?
//
// The prompt has n actions, each uniform among back `<`, stay `.` and forward `>`, then `=`. The answer is the final
// state; the walk starts at 0. n is uniform in 1..N in training, and larger than N in ood-long and ood-far:
//
//   <.>><.<=4
//
// The actions and `=` are fed, and the answer is asked at `=`. With `every` the model is also trained to give the
// current state at every action. A model that uses only the last action is right in 26% for N = 20 and in 20% for
// longer prompts. The majority answer, 0, is wrong in 78% and 80%. Errors are broken down by length.
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

class CycleNavigation final : public RunningAnswerTask {
 public:
  CycleNavigation(const RunningAnswerOptions& options, const Seeds& seeds)
      : RunningAnswerTask("cycle-navigation", {"0", "1", "2", "3", "4", "<", ".", ">", "="}, 3, options, seeds) {}

 private:
  std::int32_t next_answer(std::int32_t state, const std::vector<std::int32_t>& actions) const override {
    constexpr std::int32_t states = 5, stay = states + 1;
    return (state + actions.back() - stay + states) % states;
  }
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    cycle_navigation, RunningAnswerOptions, CycleNavigation, "where does a walk on a cycle of five states end?",
    "n actions, each uniform among back <, stay . and on >, then `=`; the answer is the state that is reached from\n"
    "0, mod 5. Train and in-distribution have 1 to N actions, ood-long up to 5N/2, ood-far up to 25N/2. Score is on\n"
    "the answer, and so is the loss (option: on the state so far as well). Errors are broken down by length.",
    "Delétang et al. 2023, arXiv 2207.02098");
