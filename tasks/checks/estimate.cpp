#include "tasks/checks/estimate.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "autograd/node.hpp"
#include "core/device/allocator.hpp"
#include "core/device/backend.hpp"
#include "core/device/graph.hpp"
#include "core/distributed/process_group.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {
namespace {

// Sequences of a batch, and how many are computed at once (0: all).
struct BatchForm {
  std::int64_t sequences = 0, length = 0, at_once = 0;
  std::optional<RandomPositions> random_positions = {};
};

// A batch of this form without values.
Batch counted_batch(const OnlyCounting& counted, const BatchForm& form) {
  return Batch::without_values(form.sequences, form.length, counted.host());
}

// Bytes of a tensor of this shape.
double stored_bytes(const Tensor& tensor) {
  return static_cast<double>(block_bytes(static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())));
}

// Bytes of the gradients of these parameters.
double stored_bytes(const NamedTensors& parameters) {
  double bytes = 0;
  for (const auto& [name, parameter] : parameters) bytes += stored_bytes(parameter);
  return bytes;
}

// Calls work(estimate, counted). Activations are the peak less the parts that work() fills in. Sets `more` if the
// memory is more than the counting device can count.
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

// The same with a model: calls work(model, estimate, counted).
template <class Work>
MemoryEstimate count_model(const ModelSetting& setting, Work&& work) {
  return count([&](MemoryEstimate& estimate, const OnlyCounting& counted) {
    const auto model = setting.make();
    estimate.at_most = std::ranges::any_of(
        setting.encoding.parts, [](const EncodingChoice::Part& part) { return part.entry->traits.memory_is_learned; });
    const NamedShapes shapes = shapes_of(*model);
    estimate.parameter_count = parameter_count(shapes);
    estimate.encoding_parameter_count = encoding_parameter_count(shapes);
    estimate.parameters = counted.live();
    work(*model, estimate, counted);
  });
}

// Runs `steps` steps on such a batch, then `after` while optimiser and batch still exist.
template <class After>
MemoryEstimate count_steps(const ModelSetting& setting, const RunConfig& config, const BatchForm& form,
                           std::int64_t steps, OptimizerState state, After&& after) {
  return count_model(setting, [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting& counted) {
    const NamedTensors trained = train_only(model.parameters(), config.run.train);
    estimate.gradients = stored_bytes(trained);
    const ProcessGroup& ranks = ProcessGroup::counted();
    estimate.at_most |= !ranks.alone() && counted.stands_for_cpu();
    std::optional<ParameterShares> shares;
    if (state == OptimizerState::split && !ranks.alone()) shares.emplace(trained, ranks);
    const std::unique_ptr<Optimizer> optimizer = Optimizer::make(config.optimiser, shares ? shares->own() : trained);
    estimate.optimiser = counted.live() - estimate.parameters;
    TrainStep step(model, *optimizer, 0, form.at_once, shares ? &*shares : nullptr, form.random_positions);
    const Batch batch = counted_batch(counted, form);
    step(batch, 1, steps);
    // Later steps need no more memory than the first, unless steps are captured: the second step then adds the captured
    // graph.
    if (steps > 1 && DeviceGraph::available(default_device())) step(batch, 2, steps);
    after(model, batch, counted);
    if (shares) shares->whole(optimizer->state());  // for a checkpoint
  });
}

// Runs the evaluation of a batch. Each rank holds one batch of the `all` sequences at a time, and has read the batches
// of the other ranks too.
void count_evaluation(SequenceModel& model, const BatchForm& form, const OnlyCounting& counted, std::int64_t all = 0) {
  std::vector<Batch> of_others;
  for (std::int64_t r = 1; r < ProcessGroup::counted().size() && r * form.sequences < all; ++r) {
    of_others.push_back(counted_batch(counted, {std::min(form.sequences, all - r * form.sequences), form.length}));
  }
  Evaluation found;
  evaluate_batch(model, counted_batch(counted, form), found);
}

}  // namespace

MemoryEstimate estimate_training(const RunConfig& config, const Task& task, OptimizerState state) {
  const std::vector<Split>& splits = task.splits();
  const auto sequences_in = [](const Split& split, std::int64_t batch) {
    return split.count == 0 ? batch : std::min(batch, split.count);
  };
  const Split& train = splits.front();
  const BatchForm whole{sequences_in(train, config.run.batch), train.length, config.run.at_once(),
                        config.random_positions(task)};
  const auto after = [&](SequenceModel& model, const Batch& batch, const OnlyCounting& counted) {
    // Evaluation of the training batch before a checkpoint.
    Evaluation found;
    for (const Batch& part : batch.parts(whole.at_once)) evaluate_batch(model, part, found);
    for (const Split& split : std::span(splits).subspan(1)) {
      count_evaluation(model, {sequences_in(split, sequences_at_once(split)), split.length}, counted, split.count);
    }
    for (const Split& split : std::span(splits).subspan(1)) {
      if (!config.run.eval_generated) break;
      const Answer answer = answer_of(task.example(split.name, 0), split.name, 0);
      if (answer.count == 0) continue;
      const std::int64_t sequences = sequences_in(split, config.run.eval_batch);
      const auto prompt = static_cast<std::int64_t>(answer.first) + 1;
      const Tensor prompts = counted_batch(counted, {sequences, prompt}).tokens;  // the masks are freed
      generate(model, prompts, static_cast<std::int64_t>(answer.count));
    }
  };
  MemoryEstimate estimate = count_steps(model_of(config, task), config, whole, config.run.steps, state, after);
  estimate.data = static_cast<double>(train.count) * sizeof(std::int64_t);
  return estimate;
}

MemoryEstimate estimate_loading(const ModelSetting& setting) {
  return count_model(setting, [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting&) {
    for (const auto& [name, parameter] : model.parameters()) {
      estimate.checkpoint = std::max(estimate.checkpoint, stored_bytes(parameter));
    }
  });
}

MemoryEstimate estimate_loading(const RunConfig& config, const Task& task) {
  return estimate_loading(model_of(config, task));
}

MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t sequences,
                                   std::int64_t length) {
  return count_model(model_of(config, task), [&](SequenceModel& model, MemoryEstimate&, const OnlyCounting& counted) {
    count_evaluation(model, {sequences, length}, counted);
  });
}

MemoryEstimate estimate_trace(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t length,
                              bool with_gradients) {
  return count_model(model_of(config, task),
                     [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting& counted) {
                       if (with_gradients) estimate.gradients = stored_bytes(model.parameters());
                       trace_pass(model, counted_batch(counted, {sequences, length}), with_gradients);
                     });
}

MemoryEstimate estimate_step(const ModelSetting& timed, const RunConfig& config, std::int64_t length,
                             std::int64_t steps) {
  return count_steps(timed, config, {config.run.batch, length, config.run.at_once()}, steps, OptimizerState::whole,
                     [](auto&&...) {});
}

MemoryEstimate estimate_attention(const BenchOptions& timed) {
  return count([&](MemoryEstimate&, const OnlyCounting&) {
    BenchOptions once(timed.config.clone());
    once.length = timed.length, once.max_length = timed.max_length, once.vocabulary = timed.vocabulary;
    once.steps = 1, once.warmup = 0;
    bench_attention(once);
  });
}

namespace {

constexpr std::int64_t heads = 4, head_width = 64, attention_memory_length = 16384;

// Only the combination of this assignment, on all heads of all layers.
EncodingChoice alone(const EncodingChoice& choice, const EncodingChoice::Assignment& assignment) {
  EncodingChoice own;
  for (const EncodingChoice::Part& part : choice.parts) {
    if (std::ranges::count(assignment.sum, part.entry) > 0) own.parts.push_back({part.entry, part.options->clone()});
  }
  own.assignments.push_back({.mask = assignment.mask, .sum = assignment.sum});
  return own;
}

}  // namespace

AttentionMemory attention_memory(const EncodingChoice& choice, const EncodingChoice::Assignment& assignment) {
  RunConfig config = RunConfig::make("flip-flop", "none", "quick");
  config.encoding = alone(choice, assignment);
  config.model.layers = 1, config.model.heads = heads, config.model.width = heads * head_width;
  config.run.batch = 1;
  BenchOptions timed(std::move(config));
  const auto bytes_at = [&](std::int64_t length) {
    timed.length = timed.max_length = length;
    return estimate_attention(timed).total();
  };
  AttentionMemory memory;
  memory.bytes = bytes_at(attention_memory_length);
  const double half = bytes_at(attention_memory_length / 2), length = attention_memory_length;
  // A linear term doubles with the length and cancels; half of a quadratic term c T² remains.
  memory.squares = memory.bytes - 2 * half > 0.25 * sizeof(float) * length * length / 2;
  memory.form = attention_form(timed.model(), 1);
  return memory;
}

std::vector<std::string> square_memory_notes(const EncodingChoice& choice) {
  std::vector<std::string> notes;
  std::set<std::string> told;
  for (const EncodingChoice::Assignment& assignment : choice.acting()) {
    if (assignment.sum.size() < 2 || !told.insert(assignment.sum_text()).second) continue;
    AttentionMemory memory;
    try {
      memory = attention_memory(choice, assignment);
    } catch (const Error&) {  // options of another width, such as a factor for each of its planes: nothing is known
      continue;
    }
    if (!memory.squares) continue;
    notes.push_back(formatted(
        "{}{}: memory grows with the square of the length; {} heads of width {} take {} for {} tokens",
        assignment.sum_text(),
        memory.form == "composed" ? " uses reference attention" : " uses fused attention and a number for each pair",
        heads, head_width, bytes_text(memory.bytes), with_commas(attention_memory_length)));
  }
  return notes;
}

}  // namespace tally
