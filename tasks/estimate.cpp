#include "tasks/estimate.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "autograd/node.hpp"
#include "core/allocator.hpp"
#include "core/backend.hpp"
#include "core/graph.hpp"
#include "nn/parameter_choice.hpp"
#include "nn/transformer.hpp"
#include "tasks/evaluate.hpp"
#include "tasks/generate.hpp"
#include "tasks/train_step.hpp"

namespace tally {
namespace {

// While it lives, programs work on a device that counts what the chosen one would need (core/meta.cpp).
class OnlyCounting {
 public:
  OnlyCounting() : chosen_(default_device()), device_(meta_of(chosen_)) {
    set_default_device(device_);
    reset_peak_memory(device_);
    before_ = memory_counters(device_).live_bytes;
  }
  ~OnlyCounting() { set_default_device(chosen_); }
  OnlyCounting(const OnlyCounting&) = delete;
  OnlyCounting& operator=(const OnlyCounting&) = delete;

  // Bytes of tensors now, and when they were most.
  double live() const { return static_cast<double>(memory_counters(device_).live_bytes - before_); }
  double peak() const { return static_cast<double>(memory_counters(device_).peak_bytes - before_); }
  Device host() const { return host_of(device_); }
  Batch batch(std::int64_t sequences, std::int64_t length) const {
    return Batch::without_values(sequences, length, host());
  }

 private:
  Device chosen_, device_;
  std::size_t before_ = 0;
};

std::unique_ptr<SequenceModel> make_model(const ModelSetting& model) {
  return tally::make_model(model.options, model.encoding, model.vocabulary, model.max_length, 0, model.dtype,
                           default_device());
}

// Of a tensor of this shape.
double bytes_of(const Tensor& tensor) {
  return static_cast<double>(block_bytes(static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())));
}

// Of their gradients.
double bytes_of(const NamedTensors& parameters) {
  double bytes = 0;
  for (const auto& [name, parameter] : parameters) bytes += bytes_of(parameter);
  return bytes;
}

// Calls work(estimate, counted): what it finds beside the peak is taken from the peak, the rest are activations. What
// not even the counting device has an end for is told as such.
template <class Work>
MemoryEstimate count(Work&& work) {
  MemoryEstimate estimate;
  const OnlyCounting counted;
  try {
    work(estimate, counted);
  } catch (const TooLarge&) {
    estimate.more = true;
  }
  const double rest = counted.peak() - estimate.parameters - estimate.gradients - estimate.optimiser;
  estimate.activations = std::max(0.0, rest);
  return estimate;
}

// The same with a model: work(model, estimate, counted).
template <class Work>
MemoryEstimate count_model(const ModelSetting& setting, Work&& work) {
  return count([&](MemoryEstimate& estimate, const OnlyCounting& counted) {
    const auto model = make_model(setting);
    estimate.at_most = std::ranges::any_of(
        setting.encoding.parts, [](const EncodingChoice::Part& part) { return part.entry->traits.memory_is_learned; });
    const NamedShapes shapes = shapes_of(*model);
    estimate.parameter_count = parameter_count(shapes);
    estimate.encoding_parameter_count = encoding_parameter_count(shapes);
    estimate.parameters = counted.live();
    work(*model, estimate, counted);
  });
}

// So many steps, and whatever `after` does while optimiser and batch are still there.
template <class After>
MemoryEstimate count_steps(const ModelSetting& setting, const RunConfig& config, std::int64_t sequences,
                           std::int64_t length, std::int64_t steps, After&& after) {
  return count_model(setting, [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting& counted) {
    const NamedTensors trained = train_only(model.parameters(), config.run.train);
    estimate.gradients = bytes_of(trained);
    const std::unique_ptr<Optimizer> optimizer = Optimizer::make(config.optimiser, trained);
    estimate.optimiser = counted.live() - estimate.parameters;
    TrainStep step(model, *optimizer, config.optimiser, 0, config.run.at_once());
    const Batch batch = counted.batch(sequences, length);
    step(batch, 1, steps);
    // Those after the first are as it was, but where they are captured: what that keeps comes with the second.
    if (steps > 1 && DeviceGraph::available(default_device())) step(batch, 2, steps);
    after(model, batch, counted);
  });
}

}  // namespace

NamedShapes shapes_of(const SequenceModel& model) {
  NamedShapes shapes;
  for (const auto& [name, parameter] : model.parameters()) shapes.emplace_back(name, parameter.shape());
  return shapes;
}

NamedShapes parameter_shapes(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                             std::int64_t max_length) {
  const OnlyCounting counted;
  return shapes_of(*make_model({options, encoding, vocabulary, max_length}));
}

NamedShapes parameter_shapes(const RunConfig& config, const Task& task) {
  const ModelSetting model = model_of(config, task);
  return parameter_shapes(model.options, model.encoding, model.vocabulary, model.max_length);
}

std::int64_t parameter_count(const NamedShapes& shapes) {
  std::int64_t count = 0;
  for (const auto& [name, shape] : shapes) count += shape.numel();
  return count;
}

std::int64_t encoding_parameter_count(const NamedShapes& shapes) {
  std::int64_t count = 0;
  for (const auto& [name, shape] : shapes) {
    if (name.starts_with("position.") || name.find(".position.") != std::string::npos) count += shape.numel();
  }
  return count;
}

ModelSetting model_of(const RunConfig& config, const Task& task) {
  return {config.model, config.encoding, static_cast<std::int64_t>(task.vocabulary().size()), task.max_length(),
          config.dtype()};
}

std::string attention_form(const ModelSetting& setting, std::int64_t layers) {
  if (!setting.options.is_transformer()) return "none";
  const OnlyCounting counted;
  const Transformer model(setting.options, setting.encoding, setting.vocabulary, setting.max_length, 0, setting.dtype,
                          default_device());
  bool tiled = false, composed = false;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const HeadGroup& group : model.encoding(layer)) {
      const EncodingTraits& traits = group.encoding->traits;
      const bool own = traits.replaces_softmax || traits.mixes;
      (own || setting.options.attention == "composed" ? composed : tiled) = true;
    }
  }
  return tiled && composed ? "tiled and composed" : composed ? "composed" : "tiled";
}

void check_length(const ModelSetting& setting, std::int64_t length) {
  const OnlyCounting counted;
  make_model(setting)->check_length(length);
}

bool reaches_untrained_rows(const RunConfig& config, const Task& task, const Split& split) {
  const std::int64_t trained = task.splits().front().length;
  if (split.length <= trained) return false;
  const OnlyCounting counted;
  return make_model(model_of(config, task))->rows_by_position() > trained;
}

MemoryEstimate estimate_training(const RunConfig& config, const Task& task) {
  const std::vector<Split>& splits = task.splits();
  const auto sequences_in = [](const Split& split, std::int64_t batch) {
    return split.count == 0 ? batch : std::min(batch, split.count);
  };
  const Split& train = splits.front();
  MemoryEstimate estimate =
      count_steps(model_of(config, task), config, sequences_in(train, config.run.batch), train.length, config.run.steps,
                  [&](SequenceModel& model, const Batch& batch, const OnlyCounting& counted) {
                    Evaluation found;
                    for (const Batch& part : batch.parts(config.run.at_once())) {
                      evaluate_batch(model, part, found);  // before a checkpoint
                    }
                    for (const Split& split : std::span(splits).subspan(1)) {
                      const std::int64_t sequences = sequences_in(split, sequences_at_once(split));
                      evaluate_batch(model, counted.batch(sequences, split.length), found);
                    }
                    for (const Split& split : std::span(splits).subspan(1)) {
                      if (!config.run.eval_generated) break;
                      const Answer answer = answer_of(task.example(split.name, 0), split.name, 0);
                      if (answer.count == 0) continue;
                      const std::int64_t sequences = sequences_in(split, config.run.eval_batch);
                      const auto prompt = static_cast<std::int64_t>(answer.first) + 1;
                      const Tensor prompts = counted.batch(sequences, prompt).tokens;  // the masks go
                      generate(model, prompts, static_cast<std::int64_t>(answer.count));
                    }
                  });
  estimate.data = static_cast<double>(train.count) * sizeof(std::int64_t);
  return estimate;
}

MemoryEstimate estimate_loading(const ModelSetting& setting) {
  return count_model(setting, [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting&) {
    for (const auto& [name, parameter] : model.parameters()) {
      estimate.checkpoint = std::max(estimate.checkpoint, bytes_of(parameter));
    }
  });
}

MemoryEstimate estimate_loading(const RunConfig& config, const Task& task) {
  return estimate_loading(model_of(config, task));
}

MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t sequences,
                                   std::int64_t length) {
  return count_model(model_of(config, task), [&](SequenceModel& model, MemoryEstimate&, const OnlyCounting& counted) {
    Evaluation found;
    evaluate_batch(model, counted.batch(sequences, length), found);
  });
}

MemoryEstimate estimate_trace(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t length,
                              bool with_gradients) {
  return count_model(model_of(config, task),
                     [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting& counted) {
                       if (with_gradients) estimate.gradients = bytes_of(model.parameters());
                       trace_pass(model, counted.batch(sequences, length), with_gradients);
                     });
}

MemoryEstimate estimate_step(const ModelSetting& timed, const RunConfig& config, std::int64_t length,
                             std::int64_t steps) {
  return count_steps(timed, config, config.run.batch, length, steps, [](auto&&...) {});
}

namespace {

// Of what is timed, run once.
MemoryEstimate count_timed(const BenchOptions& options, void (*run)(const BenchOptions&)) {
  return count([&](MemoryEstimate&, const OnlyCounting&) {
    BenchOptions once(options.config.clone());
    once.vocabulary = options.vocabulary;
    once.steps = 1, once.warmup = 0;
    run(once);
  });
}

}  // namespace

MemoryEstimate estimate_attention(const BenchOptions& timed) {
  return count_timed(timed, [](const BenchOptions& options) { bench_attention(options); });
}

MemoryEstimate estimate_operations(const BenchOptions& timed) {
  return count_timed(timed, [](const BenchOptions& options) { bench_operations(options); });
}

}  // namespace tally
