#include "tasks/checks/estimate.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>

#include "autograd/node.hpp"
#include "core/device/allocator.hpp"
#include "core/device/backend.hpp"
#include "core/device/graph.hpp"
#include "core/distributed/process_group.hpp"
#include "nn/parameter_choice.hpp"
#include "nn/transformer.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/language/separate_texts.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {
namespace {

// Sequences of a batch, and how many are computed at once (0: all). `separate`: each sequence is a separate text.
struct BatchForm {
  std::int64_t sequences = 0, length = 0, at_once = 0;
  bool separate = false;
};

std::int64_t height_of(const BatchForm& batch) {
  return batch.at_once > 0 ? std::min(batch.at_once, batch.sequences) : batch.sequences;
}

bool separates_texts(const Task& task) {
  const auto* const texts = dynamic_cast<const SeparateTexts*>(&task);
  return texts != nullptr && texts->separates_texts();
}

// Returns a set of batch forms that includes the most expensive one of this size, whatever the texts. Batches come in
// parts (tasks/data/sequence_parts.hpp) of any height and length, with no more tokens than `at_once` sequences. For a
// given number of tokens, memory depends on the length of the texts. Memory per pair of tokens is largest for long
// texts, memory per text for short ones. Padding of tiles is largest when a text is one token longer than a multiple of
// the tile. In between, memory is convex. The maximum is therefore at one of these lengths: one token more than one
// tile or than all whole tiles, for tiles of 2, 4, 8, ... tokens, and the two ends. This holds for the maximal number
// of tokens, and for the maximal number whose logits are whole: beyond that, logits exist only in strips. The first
// form has the maximal number of tokens.
std::vector<BatchForm> largest_forms(const BatchForm& whole, const Task& task, const ModelSetting& model) {
  if (!separates_texts(task)) return {whole};
  const std::int64_t height = height_of(whole), length = whole.length;
  // Lengths at least halve from group to group. All parts of a group except the last are more than half full, so
  // padding less than doubles the tokens.
  const auto groups = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(length)));
  const std::int64_t parts = groups + (4 * whole.sequences + height - 1) / height;
  // Before the last of `counted` parts, the most partial sums of gradients are held (tasks/training/tree_sum.hpp).
  const auto counted = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(parts)));
  std::vector<std::int64_t> lengths{length};
  for (std::int64_t tile = 1; tile < length; tile *= 2) {
    lengths.insert(lengths.end(), {tile, tile + 1, (length - 1) / tile * tile + 1});
  }
  std::ranges::sort(lengths);
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  const std::int64_t tokens = height * length;
  const std::int64_t whole_logits =
      most_logit_bytes / (model.vocabulary * static_cast<std::int64_t>(size_of(model.dtype)));
  std::vector<BatchForm> forms;
  for (const std::int64_t most : {tokens, whole_logits}) {
    if (!forms.empty() && most >= tokens) break;
    for (const std::int64_t of_text : lengths) {
      const std::int64_t rows = most / of_text;
      if (rows > 0) forms.push_back({counted * rows, of_text, rows, true});
    }
  }
  return forms;
}

// The largest of the estimates that estimate(form) returns.
template <class Estimate>
MemoryEstimate most_of(const std::vector<BatchForm>& forms, Estimate&& estimate) {
  MemoryEstimate most;
  for (const BatchForm& form : forms) {
    const MemoryEstimate one = estimate(form);
    if (one.more || (!most.more && one.total() > most.total())) most = one;
  }
  most.at_most |= forms.front().separate;
  return most;
}

// While it lives, programs work on a device that counts the memory the chosen one would need (core/device/meta.cpp).
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

  // Current and peak bytes of tensors.
  double live() const { return static_cast<double>(memory_counters(device_).live_bytes - before_); }
  double peak() const { return static_cast<double>(memory_counters(device_).peak_bytes - before_); }
  Device host() const { return host_of(device_); }
  bool stands_for_cpu() const { return device_ == host(); }
  Batch batch(const BatchForm& form) const {
    Batch batch = Batch::without_values(form.sequences, form.length, host());
    if (form.separate) batch.starts.resize(static_cast<std::size_t>(form.sequences));
    return batch;
  }

 private:
  Device chosen_, device_;
  std::size_t before_ = 0;
};

std::unique_ptr<SequenceModel> make_model(const ModelSetting& model) {
  return tally::make_model(model.options, model.encoding, model.vocabulary, model.max_length, 0, model.dtype,
                           default_device());
}

// Bytes of a tensor of this shape.
double bytes_of(const Tensor& tensor) {
  return static_cast<double>(block_bytes(static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())));
}

// Bytes of the gradients of these parameters.
double bytes_of(const NamedTensors& parameters) {
  double bytes = 0;
  for (const auto& [name, parameter] : parameters) bytes += bytes_of(parameter);
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

// Runs `steps` steps on such a batch, then `after` while optimiser and batch still exist.
template <class After>
MemoryEstimate count_steps(const ModelSetting& setting, const RunConfig& config, const BatchForm& form,
                           std::int64_t steps, OptimizerState state, After&& after) {
  return count_model(setting, [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting& counted) {
    const NamedTensors trained = train_only(model.parameters(), config.run.train);
    estimate.gradients = bytes_of(trained);
    const ProcessGroup& ranks = ProcessGroup::counted();
    estimate.at_most |= !ranks.alone() && counted.stands_for_cpu();
    std::optional<ParameterShares> shares;
    if (state == OptimizerState::split && !ranks.alone()) shares.emplace(trained, ranks);
    const std::unique_ptr<Optimizer> optimizer = Optimizer::make(config.optimiser, shares ? shares->own() : trained);
    estimate.optimiser = counted.live() - estimate.parameters;
    TrainStep step(model, *optimizer, 0, form.at_once, shares ? &*shares : nullptr);
    const Batch batch = counted.batch(form);
    step(batch, 1, steps);
    // Later steps need no more memory than the first, unless steps are captured: the second step then adds the captured
    // graph.
    if (steps > 1 && DeviceGraph::available(default_device())) step(batch, 2, steps);
    after(model, batch, counted);
    if (shares) shares->whole(optimizer->state());  // for a checkpoint
  });
}

// Runs the evaluation of a batch; for separate texts, of the largest part. Each rank holds one batch of the `all`
// sequences at a time, and has read the batches of the other ranks too.
void count_evaluation(SequenceModel& model, const BatchForm& form, const Task& task, const ModelSetting& setting,
                      const OnlyCounting& counted, std::int64_t all = 0) {
  std::vector<Batch> of_others;
  for (std::int64_t r = 1; r < ProcessGroup::counted().size() && r * form.sequences < all; ++r) {
    of_others.push_back(counted.batch({std::min(form.sequences, all - r * form.sequences), form.length}));
  }
  Evaluation found;
  for (const BatchForm& now : largest_forms(form, task, setting)) {
    if (!now.separate) {
      evaluate_batch(model, counted.batch(now), found);
      continue;
    }
    // All texts with their padding, and the answers to earlier texts, exist at the same time as a part.
    const Tensor beside = Tensor::empty({2 * form.sequences * form.length, 3}, DType::f64, counted.host());
    evaluate_batch(model, counted.batch({now.at_once, now.length, 0, true}), found);
  }
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
      (group.encoding->traits.is_composed() || setting.options.attention == "composed" ? composed : tiled) = true;
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

MemoryEstimate estimate_training(const RunConfig& config, const Task& task, OptimizerState state) {
  const std::vector<Split>& splits = task.splits();
  const auto sequences_in = [](const Split& split, std::int64_t batch) {
    return split.count == 0 ? batch : std::min(batch, split.count);
  };
  const Split& train = splits.front();
  const ModelSetting setting = model_of(config, task);
  const BatchForm whole{sequences_in(train, config.run.batch), train.length, config.run.at_once()};
  const auto after = [&](SequenceModel& model, const Batch& batch, const OnlyCounting& counted) {
    // Evaluation of the training batch before a checkpoint.
    if (separates_texts(task)) {
      count_evaluation(model, {height_of(whole), train.length}, task, setting, counted);
    } else {
      Evaluation found;
      for (const Batch& part : batch.parts(whole.at_once)) evaluate_batch(model, part, found);
    }
    for (const Split& split : std::span(splits).subspan(1)) {
      count_evaluation(model, {sequences_in(split, sequences_at_once(split)), split.length}, task, setting, counted,
                       split.count);
    }
    for (const Split& split : std::span(splits).subspan(1)) {
      if (!config.run.eval_generated) break;
      const Answer answer = answer_of(task.example(split.name, 0), split.name, 0);
      if (answer.count == 0) continue;
      const std::int64_t sequences = sequences_in(split, config.run.eval_batch);
      const auto prompt = static_cast<std::int64_t>(answer.first) + 1;
      const Tensor prompts = counted.batch({sequences, prompt}).tokens;  // the masks are freed
      generate(model, prompts, static_cast<std::int64_t>(answer.count));
    }
  };
  const std::vector<BatchForm> forms = largest_forms(whole, task, setting);
  MemoryEstimate estimate = most_of(forms, [&](const BatchForm& form) {
    return count_steps(setting, config, form, config.run.steps, state, [&](auto&&... rest) {
      if (&form == &forms.front()) after(rest...);
    });
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
  const ModelSetting setting = model_of(config, task);
  return count_model(setting, [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting& counted) {
    count_evaluation(model, {sequences, length}, task, setting, counted);
    estimate.at_most |= separates_texts(task);
  });
}

MemoryEstimate estimate_trace(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t length,
                              bool with_gradients) {
  return count_model(model_of(config, task),
                     [&](SequenceModel& model, MemoryEstimate& estimate, const OnlyCounting& counted) {
                       if (with_gradients) estimate.gradients = bytes_of(model.parameters());
                       trace_pass(model, counted.batch({sequences, length}), with_gradients);
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

}  // namespace tally
