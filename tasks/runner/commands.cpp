#include "tasks/runner/commands.hpp"

#include <array>

namespace tally {

std::span<const Command> commands() {
  static const std::array all{
      Command{"train", "train a model into a run folder", declare_train},
      Command{"resume", "go on with a run from its newest good checkpoint", declare_resume},
  };
  return all;
}

}  // namespace tally
