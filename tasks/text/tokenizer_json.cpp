// tokenizer.json: {"version": "1.0", "truncation": null, "padding": null, "added_tokens": [...], "normalizer": ...,
// "pre_tokenizer": ..., "post_processor": ..., "decoder": ..., "model": {"type": "BPE", "vocab": {...}, "merges":
// [...]}}
#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tasks/text/tokenizer_steps.hpp"
#include "tasks/text/vocabulary.hpp"

namespace tally {
namespace {

using Node = TokenizerNode;

void read_added_tokens(const Node& file, VocabularyBuilder& builder) {
  if (file.absent("added_tokens")) return;
  for (const Node& token : file.elements("added_tokens")) {
    token.check_names({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const AddedFlags flags{.single_word = token.flag("single_word", false),
                           .lstrip = token.flag("lstrip", false),
                           .rstrip = token.flag("rstrip", false),
                           .normalized = token.flag("normalized", false)};
    builder.at("added_tokens");
    if (token.flag("special", false)) {
      builder.add_special(token.text("content"), token.integer("id"), flags);
    } else {
      builder.add_added(token.text("content"), token.integer("id"), flags);
    }
  }
}

void read_merges(const Node& model, VocabularyBuilder& builder) {
  std::size_t number = 0;
  for (const Node& merge : model.elements("merges")) {
    builder.at(formatted("model.merges[{}]", number++));
    const JsonValue& pair = merge.value();
    if (pair.is_string()) {
      builder.add_merge(pair.string());
    } else {
      const bool is_pair = pair.is_array() && pair.elements().size() == 2 && pair.elements()[0].is_string() &&
                           pair.elements()[1].is_string();
      if (!is_pair) builder.fail_here("is {}; a pair of tokens is wanted", pair.kind());
      builder.add_merge(pair.elements()[0].string(), pair.elements()[1].string());
    }
  }
}

void read_model(const Node& model, VocabularyBuilder& builder) {
  model.check_object();
  model.check_names({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                     "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonValue* const affix = model.value().find(name);
    if (affix == nullptr || *affix != JsonValue("")) model.check_absent(name);
  }
  const JsonValue* const dropout = model.value().find("dropout");
  // With dropout, merges would be skipped at random.
  if (dropout != nullptr && *dropout != JsonValue(0.0)) model.check_absent("dropout");
  // All bytes have tokens, so there are no unknown tokens, whatever unk_token and fuse_unk are.
  if (model.flag("byte_fallback", false)) {
    model.check_flag("ignore_merges", false);
  } else {
    builder.parts.ignore_merges = model.flag("ignore_merges", false);
  }
  builder.at("model.vocab");
  builder.add_written(model.child("vocab").value());
  builder.finish_tokens();
  read_merges(model, builder);
  if (builder.parts.has_byte_fallback()) set_fallback_pattern(builder.parts);
}

// Whether a post-processor adds tokens around a text; ByteLevel only changes offsets.
bool adds_tokens(const Node& step) {
  if (step.text("type") != "Sequence") return step.text("type") != "ByteLevel";
  return std::ranges::any_of(step.elements("processors"), adds_tokens);
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& source) {
  const JsonLimits limits{.max_depth = 16, .max_values = 10'000'000, .max_token_bytes = 1 << 20};
  const JsonValue value = parse_json(text, limits, source);
  const Node file(value, escape_for_print(source, 1000), "");
  file.check_names({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                    "decoder", "model"});
  if (!file.absent("version") && file.text("version") != "1.0") file.refuse("version", "only \"1.0\" is known");
  for (const char* name : {"truncation", "padding"}) file.check_absent(name);
  const JsonValue* const model = value.find("model");
  const bool has_model = model != nullptr && model->is_object();
  // Checked first, because otherwise the error would name the steps of another type. Older BPE files have no type.
  if (has_model) {
    const Node node = file.child("model");
    if (node.absent("type") && !model->contains("merges")) {
      node.refuse("type", "is missing, and the model has no merges; \"BPE\" with merges is read");
    }
    if (!node.absent("type") && node.text("type") != "BPE") {
      node.refuse("type", "'{}' is not read; BPE is", escape_for_print(node.text("type")));
    }
  }
  VocabularyBuilder builder(escape_for_print(source, 1000));
  read_added_tokens(file, builder);
  const bool byte_fallback = has_model && file.child("model").flag("byte_fallback", false);
  if (byte_fallback) builder.use_byte_fallback();
  read_tokenizer_steps(file, byte_fallback, builder.parts);
  if (!file.absent("post_processor") && adds_tokens(file.child("post_processor"))) {
    builder.parts.notes.emplace_back("its post-processor is not applied: no token is added before or behind a text");
  }
  read_model(file.child("model"), builder);
  return std::move(builder.parts);
}

std::string tokenizer_json(const TokenizerParts& parts) {
  JsonValue added = JsonValue::array(), merges = JsonValue::array();
  JsonValue::Object vocabulary;
  const bool byte_fallback = parts.has_byte_fallback();
  const auto written = [&](std::int32_t id) {
    const std::string& token = parts.tokens[static_cast<std::size_t>(id)];
    if (!byte_fallback) return byte_characters(token);
    const auto byte = std::ranges::find(parts.byte_tokens, id);
    return byte == parts.byte_tokens.end() ? blanks_written(token)
                                           : byte_token(static_cast<int>(byte - parts.byte_tokens.begin()));
  };
  for (std::int32_t id = 0; std::cmp_less(id, parts.tokens.size()); ++id) {
    if (parts.is_of_model(id)) vocabulary.push_back({written(id), id});
  }
  const auto add = [&](std::int32_t id, const std::string& content, const AddedFlags& flags, bool is_special) {
    added.push(JsonValue::object({{"id", id},
                                  {"content", content},
                                  {"single_word", flags.single_word},
                                  {"lstrip", flags.lstrip},
                                  {"rstrip", flags.rstrip},
                                  {"normalized", flags.normalized},
                                  {"special", is_special}}));
  };
  for (const SpecialToken& special : parts.specials) add(special.id, special.name, special.flags, true);
  for (const AddedToken& token : parts.added) add(token.id, token.text, token.flags, false);
  for (const MergedPair& merge : parts.merges) {
    merges.push(JsonValue(JsonValue::Array{written(merge.left), written(merge.right)}));
  }
  const JsonValue model = JsonValue::object({{"type", "BPE"},
                                             {"dropout", {}},
                                             {"unk_token", {}},
                                             {"continuing_subword_prefix", {}},
                                             {"end_of_word_suffix", {}},
                                             {"fuse_unk", false},
                                             {"byte_fallback", byte_fallback},
                                             {"ignore_merges", parts.ignore_merges},
                                             {"vocab", std::move(vocabulary)},
                                             {"merges", std::move(merges)}});
  return write_json(JsonValue::object({{"version", "1.0"},
                                       {"truncation", {}},
                                       {"padding", {}},
                                       {"added_tokens", std::move(added)},
                                       {"normalizer", normalizer_json(parts)},
                                       {"pre_tokenizer", pre_tokenizer_json(parts)},
                                       {"post_processor", {}},
                                       {"decoder", decoder_json(parts)},
                                       {"model", model}}),
                    1) +
         "\n";
}

std::string tokenizer_config_json(const TokenizerParts& parts, std::optional<std::int64_t> bos,
                                  std::optional<std::int64_t> eos, std::int64_t length) {
  JsonValue config = JsonValue::object({{"tokenizer_class", "PreTrainedTokenizerFast"},
                                        {"clean_up_tokenization_spaces", false},
                                        {"add_bos_token", false},
                                        {"add_eos_token", false}});
  const auto name = [&](const char* member, std::optional<std::int64_t> id) {
    const auto found = std::ranges::find_if(parts.specials, [&](const SpecialToken& token) { return token.id == id; });
    if (found != parts.specials.end()) config.set(member, found->name);
  };
  name("bos_token", bos);
  name("eos_token", eos);
  if (length > 0) config.set("model_max_length", length);
  return write_json(config, 2) + "\n";
}

}  // namespace tally
