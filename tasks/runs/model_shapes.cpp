#include "tasks/runs/model_shapes.hpp"

#include "core/device/backend.hpp"
#include "nn/transformer.hpp"

namespace tally {

OnlyCounting::OnlyCounting() : chosen_(default_device()), device_(meta_of(chosen_)) {
  set_default_device(device_);
  reset_peak_memory(device_);
  before_ = memory_counters(device_).live_bytes;
}

OnlyCounting::~OnlyCounting() { set_default_device(chosen_); }

double OnlyCounting::live() const { return static_cast<double>(memory_counters(device_).live_bytes - before_); }
double OnlyCounting::peak() const { return static_cast<double>(memory_counters(device_).peak_bytes - before_); }
Device OnlyCounting::host() const { return host_of(device_); }

std::unique_ptr<SequenceModel> ModelSetting::make() const {
  return make_model(options, encoding, vocabulary, max_length, 0, dtype, default_device());
}

ModelSetting model_of(const RunConfig& config, const Task& task) {
  return {config.model, config.encoding, static_cast<std::int64_t>(task.vocabulary().size()), config.longest(task),
          config.dtype()};
}

NamedShapes shapes_of(const SequenceModel& model) {
  NamedShapes shapes;
  for (const auto& [name, parameter] : model.parameters()) shapes.emplace_back(name, parameter.shape());
  return shapes;
}

NamedShapes parameter_shapes(const ModelSetting& model) {
  const OnlyCounting counted;
  return shapes_of(*model.make());
}

NamedShapes parameter_shapes(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                             std::int64_t max_length) {
  return parameter_shapes(ModelSetting{options, encoding, vocabulary, max_length});
}

NamedShapes parameter_shapes(const RunConfig& config, const Task& task) {
  return parameter_shapes(model_of(config, task));
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
  setting.make()->check_length(length);
}

bool reaches_untrained_rows(const RunConfig& config, const Task& task, const Split& split) {
  const std::int64_t trained = task.splits().front().length;
  if (split.length <= trained) return false;
  const OnlyCounting counted;
  return model_of(config, task).make()->rows_by_position() > trained;
}

}  // namespace tally
