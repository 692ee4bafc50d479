#include "tasks/foreign/foreign_model.hpp"

#include <algorithm>

#include "core/backend.hpp"
#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/estimate.hpp"
#include "tasks/foreign/weights.hpp"
#include "tasks/memory.hpp"

namespace tally {
namespace {

// Keys of every kind of model that change nothing of what is computed: names, types of storage, what is for training,
// for generation or for other tasks.
void pass_over_common(ForeignSettings& settings) {
  settings.pass_over({"architectures",
                      "model_type",
                      "dtype",
                      "torch_dtype",
                      "transformers_version",
                      "_name_or_path",
                      "_commit_hash",
                      "use_cache",
                      "bos_token_id",
                      "eos_token_id",
                      "pad_token_id",
                      "sep_token_id",
                      "unk_token_id",
                      "initializer_range",
                      "output_attentions",
                      "output_hidden_states",
                      "return_dict",
                      "return_dict_in_generate",
                      "torchscript",
                      "id2label",
                      "label2id",
                      "num_labels",
                      "problem_type",
                      "finetuning_task",
                      "task_specific_params",
                      "tokenizer_class",
                      "gradient_checkpointing",
                      "_attn_implementation",
                      "attn_implementation",
                      "_attn_implementation_autoset",
                      "do_sample",
                      "max_length",
                      "min_length",
                      "max_new_tokens",
                      "temperature",
                      "top_k",
                      "top_p",
                      "num_beams",
                      "repetition_penalty",
                      "length_penalty",
                      "no_repeat_ngram_size",
                      "early_stopping",
                      "num_return_sequences",
                      "use_bfloat16"});
}

// The first of eos_token_id, which may be a list.
std::optional<std::int64_t> end_of_text(const JsonValue& json) {
  const JsonValue* value = json.find("eos_token_id");
  if (value != nullptr && value->is_array() && !value->elements().empty()) value = &value->elements().front();
  if (value == nullptr || !value->is_integer()) return std::nullopt;
  return value->integer();
}

// What Task::max_length will be of such a run.
std::int64_t longest_of(const RunConfig& config) {
  OwnSettings settings(config, "a run");
  const std::int64_t positions = settings.integer("task.positions");
  return positions > 0 ? positions : settings.integer("task.length");
}

}  // namespace

ForeignDescription read_description(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return describe_foreign(read_json(path, foreign_config_limits, 1 << 20), path);
}

ForeignDescription describe_foreign(const JsonValue& json, const std::string& path) {
  ForeignSettings settings(json, escape_for_print(path, 1000));
  const std::string type = settings.text("model_type");
  std::vector<std::string> known;
  for (const Family* family : families()) {
    known.emplace_back(family->model_type);
    if (family->model_type != type) continue;
    ForeignDescription description{family, family->read(settings), end_of_text(json)};
    pass_over_common(settings);
    settings.refuse_unread();
    return description;
  }
  settings.refuse("model_type", "= '", escape_for_print(type, 60), "' is not read; there are ", joined(known));
}

RunConfig config_of(const ForeignDescription& description, const std::string& pe) {
  constexpr std::int64_t comfortable_length = 1024;
  const ForeignModel& model = description.model;
  RunConfig config = RunConfig::make("text", pe.empty() ? model.encoding : pe);
  for (const EncodingChoice::Assignment& assignment : config.encoding.acting()) {
    const bool acts =
        std::ranges::any_of(assignment.sum, [&](const auto* entry) { return entry->name == model.encoding; });
    check(acts, "import", "--pe ", pe, " leaves out ", model.encoding, ", which the model was trained with");
  }
  for (const auto& [name, value] : model.settings) config.set(name, value);
  config.set("task.vocabulary", concat(model.vocabulary));
  config.set("task.length", concat(std::min(model.positions, comfortable_length)));
  if (model.learned_positions) config.set("task.positions", concat(model.positions));
  config.validate();
  return config;
}

ForeignLoaded load_foreign(const std::string& folder, const ForeignDescription& description, const RunConfig& config) {
  const ForeignWeights weights = ForeignWeights::open(folder);
  const ModelSetting setting{config.model, config.encoding, description.model.vocabulary, longest_of(config),
                             config.dtype()};
  const ForeignMapping mapping(
      weights, *description.family, config.model,
      parameter_shapes(setting.options, setting.encoding, setting.vocabulary, setting.max_length));
  check_fits(estimate_loading(setting));
  std::unique_ptr<SequenceModel> model =
      make_model(setting.options, setting.encoding, setting.vocabulary, setting.max_length,
                 static_cast<std::uint64_t>(config.run.seed), setting.dtype, default_device());
  mapping.load(model->parameters());
  return {std::move(model), mapping.not_in_file()};
}

JsonValue foreign_config(const Family& family, const RunConfig& config, const Task& task) {
  OwnSettings settings(config, family.name);
  const JsonValue own = family.write(settings);
  settings.refuse_unread();
  JsonValue json = JsonValue::object({{"architectures", JsonValue::Array{family.architecture}},
                                      {"model_type", family.model_type},
                                      {"torch_dtype", config.run.dtype == "f64" ? "float64" : "float32"},
                                      {"vocab_size", task.vocabulary().size()}});
  json.set(family.positions_key, task.max_length());
  for (const JsonMember& member : own.members()) json.set(member.name, member.value);
  const std::vector<std::int32_t> end = task.beginning();
  for (const char* key : {"bos_token_id", "eos_token_id"}) json.set(key, end.empty() ? JsonValue() : end.front());
  return json;
}

}  // namespace tally
