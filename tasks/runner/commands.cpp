#include "tasks/runner/commands.hpp"

#include <array>

namespace tally {

std::span<const Command> commands() {
  static const std::array all{
      Command{"list", "tasks, encodings and presets, one line each", declare_list},
      Command{"describe", "formula, options, defaults and paper of one of them", declare_describe},
      Command{"train", "train a model into a run folder", declare_train},
      Command{"resume", "go on with a run from its newest good checkpoint", declare_resume},
      Command{"eval", "errors of a trained model, also on longer sequences", declare_eval},
      Command{"predict", "what a model answers to a text, and what it attends to", declare_predict},
      Command{"sweep", "a grid of runs: encodings, seeds, settings", declare_sweep},
      Command{"report", "errors over seeds as a table, learning curves as SVG", declare_report},
      Command{"dump", "what a model computes on a few sequences, as a file", declare_dump},
      Command{"data", "sequences of a task as text, JSON lines or .npy", declare_data},
      Command{"export", "the weights of a run alone", declare_export},
      Command{"show", "what a .safetensors or .npy file holds", declare_show},
      Command{"gradcheck", "derivatives against central differences, in f64", declare_gradcheck},
      Command{"bench", "time of a training step, or of single operations", declare_bench},
      Command{"info", "device, BLAS kernels, threads, compiler, version", declare_info},
  };
  return all;
}

}  // namespace tally
