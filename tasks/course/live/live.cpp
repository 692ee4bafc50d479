// The live chapter: models that learn flip-flop side by side. Compiled to WebAssembly, the page calls the functions at
// the end; compiled for this machine, main() prints the losses that the page must reproduce.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "core/error.hpp"
#include "core/io/json.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/data/task.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {
namespace {

// The settings of `tally train --task flip-flop --preset quick` with a smaller model, shorter sequences and smaller
// batches.
constexpr std::int64_t steps = 800, batch = 8;
constexpr std::uint64_t seed = 1;

class Learner {
 public:
  // p_max: the option --pe.p-max of cope. ignored: the share of ignored pairs in training, in percent.
  Learner(const std::string& name, std::int64_t p_max, std::int64_t heads, std::int64_t length, int ignored)
      : task_(make_task(length, ignored)),
        model_(make_model(model_options(heads), name == "cope" ? encoding(name, {{"p-max", p_max}}) : encoding(name),
                          static_cast<std::int64_t>(task_->vocabulary().size()), task_->max_length(), seed)),
        optimizer_(Optimizer::make(optimizer_options(), model_->parameters())),
        step_(*model_, *optimizer_, seed),
        order_(task_->splits().front(), batch, seed) {}

  // One step of training; its loss.
  double train() {
    ++done_;
    return step_(batch_of(*task_, order_, done_), done_, steps).loss;
  }
  std::int64_t done() const { return done_; }
  double error(const std::string& split, std::int64_t sequences) {
    return evaluate(*model_, *task_, split, sequences, sequences).token_error();
  }

  // What the model does with a text, which may be unfinished: {"tokens", "answers", "layers": [{"weights", "gates"}]}
  // with matrices [heads, T, T] as flat arrays of thousandths. Throws Error for symbols other than w, r, i, 0, 1.
  JsonValue look(const std::string& text) {
    const std::vector<std::int32_t> tokens = task_->encode(text);
    check(!tokens.empty() && std::ssize(tokens) <= task_->max_length(), "live", "1 to {} symbols, not {}",
          task_->max_length(), tokens.size());
    const NoGrad values_only;
    std::vector<AttentionTrace> layers;
    const Tensor logits = model_->forward(Tensor::from(tokens, {1, std::ssize(tokens)}), {.trace = &layers});
    JsonValue symbols = JsonValue::array(), answers = JsonValue::array(), shown = JsonValue::array();
    for (const std::int32_t token : tokens) symbols.push(task_->vocabulary()[static_cast<std::size_t>(token)]);
    for (const std::int64_t best : argmax(logits).to_vector<std::int64_t>())
      answers.push(task_->vocabulary()[static_cast<std::size_t>(best)]);
    for (const AttentionTrace& layer : layers) {
      JsonValue one = JsonValue::object({{"weights", numbers(layer.weights)}});
      if (layer.gates.defined()) one.set("gates", numbers(layer.gates));
      shown.push(std::move(one));
    }
    return JsonValue::object(
        {{"tokens", std::move(symbols)}, {"answers", std::move(answers)}, {"layers", std::move(shown)}});
  }

 private:
  static std::unique_ptr<Task> make_task(std::int64_t length, int ignored) {
    const TaskEntry& entry = find_task("flip-flop");
    const std::unique_ptr<Options> options = entry.make_options();
    set_option(*options, "live", "length", std::to_string(length));
    set_option(*options, "live", "p-ignore", std::to_string(ignored / 100.0));
    return entry.make(*options, seed, /*data_seed=*/0);
  }
  static ModelOptions model_options(std::int64_t heads) {
    ModelOptions options;
    options.layers = 2;
    options.width = 32;
    options.heads = heads;
    options.init = "fan-in";
    return options;
  }
  static OptimizerOptions optimizer_options() {
    OptimizerOptions options;
    options.lr = 3e-3;
    options.set("beta2", "0.99");
    options.weight_decay = 0.1;
    options.decay = "matrices";
    options.clip = 1;
    options.schedule = "linear";
    options.warmup = 20;
    return options;
  }
  // In thousandths, which are enough for a picture.
  static JsonValue numbers(const Tensor& x) {
    JsonValue all = JsonValue::array();
    for (const float value : x.to_dense().to_vector<float>()) {
      all.push(static_cast<std::int64_t>(std::lround(value * 1000)));
    }
    return all;
  }

  std::unique_ptr<Task> task_;
  std::unique_ptr<SequenceModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  TrainStep step_;
  TrainingOrder order_;
  std::int64_t done_ = 0;
};

std::unique_ptr<Learner> learner;
std::string answer;  // the text that the last call returned

// The JSON of f, or {"error": message}.
template <class F>
const char* as_json(F&& f) {
  try {
    answer = write_json(f());
  } catch (const std::exception& error) {
    answer = write_json(JsonValue::object({{"error", error.what()}}));
  }
  return answer.c_str();
}

}  // namespace
}  // namespace tally

extern "C" {

// Begins with an untrained model.
const char* live_start(const char* encoding, int p_max, int heads, int length, int ignored) {
  return tally::as_json([&] {
    tally::learner = std::make_unique<tally::Learner>(encoding, p_max, heads, length, ignored);
    return tally::JsonValue::object({{"steps", tally::steps}});
  });
}

// {"step", "loss"} after at most `count` further steps.
const char* live_train(int count) {
  return tally::as_json([&] {
    double loss = 0;
    for (int n = 0; n < count && tally::learner->done() < tally::steps; ++n) loss = tally::learner->train();
    return tally::JsonValue::object({{"step", tally::learner->done()}, {"loss", loss}});
  });
}

// {"error_rate"} on the first sequences of a split.
const char* live_evaluate(const char* split, int sequences) {
  return tally::as_json([&] {
    return tally::JsonValue::object({{"error_rate", tally::learner->error(split, sequences)}});
  });
}

const char* live_look(const char* text) {
  return tally::as_json([&] { return tally::learner->look(text); });
}

}  // extern "C"

#ifdef __EMSCRIPTEN__
// OpenMP of one thread, and no libraries that are loaded at run time.
extern "C" {
void* live_no_library(const char*, int) { return nullptr; }  // in place of dlopen
int omp_get_max_threads() { return 1; }
int omp_get_num_threads() { return 1; }
int omp_get_thread_num() { return 0; }
}
#else
// live ENCODING P_MAX HEADS LENGTH IGNORED STEPS: prints the loss of each step.
int main(int count, char** words) {
  if (count != 7) return 2;
  tally::set_thread_count(1);
  tally::Learner learner(words[1], std::stoi(words[2]), std::stoi(words[3]), std::stoi(words[4]), std::stoi(words[5]));
  for (int n = 0; n < std::stoi(words[6]); ++n) std::printf("%.9g\n", learner.train());
  std::printf("error %.4f\n", learner.error("in-distribution", 50));
  return 0;
}
#endif
