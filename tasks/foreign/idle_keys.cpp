#include "tasks/foreign/settings.hpp"

#include <algorithm>
#include <array>

namespace tally {
namespace {

using namespace std::string_view_literals;

constexpr std::array about_the_file{
    "architectures"sv,        "model_type"sv, "dtype"sv,         "torch_dtype"sv,  "use_bfloat16"sv,
    "transformers_version"sv, "auto_map"sv,   "_name_or_path"sv, "_commit_hash"sv,
};

// Idle with any value.
constexpr std::array idle{
    // Token ids, for generation and for padding, which is masked.
    "bos_token_id"sv, "eos_token_id"sv, "pad_token_id"sv, "sep_token_id"sv, "unk_token_id"sv, "cls_token_id"sv,
    "mask_token_id"sv, "decoder_start_token_id"sv, "forced_bos_token_id"sv, "forced_eos_token_id"sv,
    "suppress_tokens"sv, "begin_suppress_tokens"sv, "bad_words_ids"sv, "tokenizer_class"sv, "prefix"sv, "n_special"sv,
    "predict_special_tokens"sv,
    // Start values and training.
    "initializer_range"sv, "initializer_factor"sv, "init_std"sv, "attention_dropout"sv, "hidden_dropout"sv,
    "attention_probs_dropout_prob"sv, "hidden_dropout_prob"sv, "classifier_dropout"sv, "attn_pdrop"sv, "embd_pdrop"sv,
    "resid_pdrop"sv, "dropout"sv, "activation_dropout"sv, "layerdrop"sv, "gradient_checkpointing"sv,
    "neftune_noise_alpha"sv, "use_reentrant_checkpointing"sv,
    // Implementations of the same function.
    "use_cache"sv, "pretraining_tp"sv, "chunk_size_feed_forward"sv, "reorder_and_upcast_attn"sv, "torchscript"sv,
    "attn_implementation"sv, "use_flash_attention"sv, "use_flash_attn"sv, "fused_norm"sv, "tf_legacy_loss"sv,
    "output_attentions"sv, "output_hidden_states"sv, "output_past"sv, "output_scores"sv, "return_dict"sv,
    "return_dict_in_generate"sv,
    // Settings of other tasks and of encoders.
    "id2label"sv, "label2id"sv, "num_labels"sv, "problem_type"sv, "finetuning_task"sv, "task_specific_params"sv,
    "is_decoder"sv, "tie_encoder_decoder"sv, "cross_attention_hidden_size"sv, "is_llama_config"sv,
    // Lengths without any effect; rope_settings.cpp reads the lengths for stretched positions.
    "n_ctx"sv, "max_sequence_length"sv, "model_max_length"sv, "max_window_layers"sv,
    "original_max_position_embeddings"sv,
    // Generation.
    "do_sample"sv, "max_length"sv, "min_length"sv, "max_new_tokens"sv, "temperature"sv, "top_k"sv, "top_p"sv,
    "typical_p"sv, "num_beams"sv, "num_beam_groups"sv, "diversity_penalty"sv, "repetition_penalty"sv,
    "length_penalty"sv, "no_repeat_ngram_size"sv, "encoder_no_repeat_ngram_size"sv, "early_stopping"sv,
    "num_return_sequences"sv, "remove_invalid_values"sv, "exponential_decay_length_penalty"sv,
    // Notes of other programs.
    "transformers.js_config"sv, "unsloth_version"sv, "unsloth_fixed"sv, "license"sv, "library_name"sv};

bool is_false(const JsonValue& value, const JsonValue&) { return value.is_bool() && !value.boolean(); }
bool is_one(const JsonValue& value, const JsonValue&) { return value.is_number() && value.real() == 1; }
bool is_empty(const JsonValue& value, const JsonValue&) {
  return (value.is_object() && value.members().empty()) || (value.is_array() && value.elements().empty());
}
bool never(const JsonValue&, const JsonValue&) { return false; }
bool is_swiglu(const JsonValue& value, const JsonValue&) { return value.is_string() && value.string() == "swiglu"; }
// Qwen2 files have a window width even if their flag disables windows.
bool is_not_used(const JsonValue&, const JsonValue& object) {
  const JsonValue* const used = object.find("use_sliding_window");
  return used != nullptr && used->is_bool() && !used->boolean();
}
bool is_full_attention(const JsonValue& value, const JsonValue&) {
  return value.is_array() && std::ranges::all_of(value.elements(), [](const JsonValue& layer) {
           return layer.is_string() && layer.string() == "full_attention";
         });
}

struct Conditional {
  std::string_view key;
  bool (*is_idle)(const JsonValue& value, const JsonValue& object);
};
constexpr std::array conditional{
    Conditional{"rope_interleaved", is_false},    Conditional{"use_sliding_window", is_false},
    Conditional{"sliding_window", is_not_used},   Conditional{"layer_types", is_full_attention},
    Conditional{"use_mrope", is_false},           Conditional{"add_cross_attention", is_false},
    Conditional{"is_encoder_decoder", is_false},  Conditional{"pruned_heads", is_empty},
    Conditional{"qk_layernorm", is_false},        Conditional{"qk_layer_norms", is_false},
    Conditional{"use_qk_norm", is_false},         Conditional{"activation", is_swiglu},
    Conditional{"logit_scale", is_one},           Conditional{"embedding_multiplier", is_one},
    Conditional{"residual_multiplier", is_one},   Conditional{"logits_scaling", is_one},
    Conditional{"attn_logit_softcapping", never}, Conditional{"final_logit_softcapping", never},
    Conditional{"quantization_config", never},
};

}  // namespace

KeyEffect effect_of(std::string_view key, const JsonValue& object) {
  const auto found = std::ranges::find(conditional, key, &Conditional::key);
  if (found != conditional.end()) {
    return found->is_idle(object.at(key), object) ? KeyEffect::none : KeyEffect::changes;
  }
  // Notes of a library begin with an underscore: _attn_implementation, _num_labels.
  const bool none = key.starts_with('_') || key.starts_with("summary_") || is_about_the_file(key) ||
                    std::ranges::find(idle, key) != idle.end();
  return none ? KeyEffect::none : KeyEffect::unknown;
}

bool is_about_the_file(std::string_view key) { return std::ranges::find(about_the_file, key) != about_the_file.end(); }

}  // namespace tally
