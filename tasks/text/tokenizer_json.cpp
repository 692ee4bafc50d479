// tokenizer.json: {"version": "1.0", "truncation": null, "padding": null, "added_tokens": [...], "normalizer": ...,
// "pre_tokenizer": ..., "post_processor": ..., "decoder": ..., "model": {"type": "BPE", "vocab": {...}, "merges":
// [...]}}
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tasks/text/vocabulary.hpp"

namespace tally {
namespace {

using Names = std::initializer_list<std::string_view>;

// An object of the file with its location, "pre_tokenizer.pretokenizers[0]", for messages.
class Node {
 public:
  Node(const JsonValue& value, std::string source, std::string path)
      : value_(value), source_(std::move(source)), path_(std::move(path)) {}

  template <class... Parts>
  [[noreturn]] void refuse(std::string_view member, const Parts&... parts) const {
    const std::string dot = path_.empty() || member.empty() ? "" : ".";
    fail("tokenizer", source_, ": ",
         path_.empty() && member.empty() ? "the file" : path_ + dot + escape_for_print(member), ": ", parts...);
  }
  void check_object() const {
    if (!value_.is_object()) refuse("", "is ", value_.kind(), "; an object is wanted");
  }
  // Only these members may be there.
  void check_names(Names names) const {
    check_object();
    for (const JsonMember& member : value_.members()) {
      if (std::find(names.begin(), names.end(), member.name) == names.end()) refuse(member.name, "is not known here");
    }
  }
  // Null or not there.
  bool absent(std::string_view name) const {
    const JsonValue* member = value_.find(name);
    return member == nullptr || member->is_null();
  }
  const JsonValue& member(std::string_view name) const {
    const JsonValue* found = value_.find(name);
    if (found == nullptr) refuse(name, "is missing");
    return *found;
  }
  Node child(std::string_view name) const {
    return {member(name), source_, path_.empty() ? std::string(name) : concat(path_, ".", name)};
  }
  std::vector<Node> elements(std::string_view name) const {
    const JsonValue& array = member(name);
    if (!array.is_array()) refuse(name, "is ", array.kind(), "; an array is wanted");
    std::vector<Node> nodes;
    for (const JsonValue& element : array.elements()) {
      nodes.emplace_back(element, source_, concat(path_.empty() ? "" : path_ + ".", name, "[", nodes.size(), "]"));
    }
    return nodes;
  }
  const std::string& text(std::string_view name) const {
    const JsonValue& value = member(name);
    if (!value.is_string()) refuse(name, "is ", value.kind(), "; a string is wanted");
    return value.string();
  }
  std::int64_t integer(std::string_view name) const {
    const JsonValue& value = member(name);
    if (!value.is_integer()) refuse(name, "is ", value.kind(), "; an integer is wanted");
    return value.integer();
  }
  bool flag(std::string_view name, bool otherwise) const {
    if (absent(name)) return otherwise;
    const JsonValue& value = member(name);
    if (!value.is_bool()) refuse(name, "is ", value.kind(), "; true or false is wanted");
    return value.boolean();
  }
  // What has one value that is understood here.
  void check_flag(std::string_view name, bool wanted) const {
    if (flag(name, wanted) != wanted) refuse(name, "is not read here when it is ", !wanted);
  }
  void check_absent(Names names) const {
    for (const std::string_view name : names) {
      if (!absent(name)) refuse(name, "is not read here unless it is null");
    }
  }
  const JsonValue& value() const { return value_; }

 private:
  const JsonValue& value_;
  std::string source_, path_;
};

void check_byte_level(const Node& node) {
  node.check_names({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (node.text("type") != "ByteLevel") {
    node.refuse("type", "'", escape_for_print(node.text("type")), "' is not read; ByteLevel is");
  }
}

std::string read_pattern(const Node& node) {
  const std::string& type = node.text("type");
  if (type == "ByteLevel") {
    check_byte_level(node);
    node.check_flag("add_prefix_space", false);
    node.check_flag("use_regex", true);
    return "gpt2";
  }
  if (type != "Sequence") node.refuse("type", "'", escape_for_print(type), "' is not read; ByteLevel and Sequence are");
  node.check_names({"type", "pretokenizers"});
  const std::vector<Node> steps = node.elements("pretokenizers");
  if (steps.size() != 2) node.refuse("pretokenizers", "has ", steps.size(), " steps; Split and ByteLevel are read");
  const Node& split = steps[0];
  split.check_names({"type", "pattern", "behavior", "invert"});
  if (split.text("type") != "Split")
    split.refuse("type", "'", escape_for_print(split.text("type")), "' is not read; Split is");
  if (split.text("behavior") != "Isolated") split.refuse("behavior", "only Isolated is read");
  split.check_flag("invert", false);
  const Node pattern = split.child("pattern");
  pattern.check_names({"Regex"});
  check_byte_level(steps[1]);
  steps[1].check_flag("add_prefix_space", false);
  if (steps[1].flag("use_regex", true)) steps[1].refuse("use_regex", "is not read here unless it is false");
  return std::string(split_pattern_name(pattern.text("Regex")));
}

// What stands around a byte-level model.
void read_byte_level_steps(const Node& file, VocabularyBuilder& builder) {
  if (!file.absent("normalizer")) {
    const Node normalizer = file.child("normalizer");
    normalizer.check_names({"type"});
    if (normalizer.text("type") != "NFC") normalizer.refuse("type", "only NFC is read");
    builder.parts.nfc = true;
  }
  const Node pre_tokenizer = file.child("pre_tokenizer");
  pre_tokenizer.check_object();
  builder.parts.pattern = read_pattern(pre_tokenizer);
  const Node decoder = file.child("decoder");
  decoder.check_object();
  check_byte_level(decoder);
}

void read_added_tokens(const Node& file, VocabularyBuilder& builder) {
  if (file.absent("added_tokens")) return;
  for (const Node& token : file.elements("added_tokens")) {
    token.check_names({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    for (const std::string_view name : {"single_word", "lstrip", "rstrip"}) token.check_flag(name, false);
    builder.at("added_tokens");
    if (token.flag("special", false)) {
      builder.add_special(token.text("content"), token.integer("id"));
    } else {
      builder.add_added(token.text("content"), token.integer("id"));
    }
  }
}

void read_merges(const Node& model, VocabularyBuilder& builder) {
  const JsonValue& merges = model.member("merges");
  if (!merges.is_array()) model.refuse("merges", "is ", merges.kind(), "; an array is wanted");
  std::size_t number = 0;
  for (const JsonValue& merge : merges.elements()) {
    builder.at("model.merges[", number++, "]");
    if (merge.is_string()) {
      const std::string_view text = merge.string();
      const std::size_t blank = text.find(' ');
      const bool is_pair = blank != text.npos && text.find(' ', blank + 1) == text.npos;
      if (!is_pair) builder.fail_here("'", escape_for_print(text), "'; two tokens with one blank between are wanted");
      builder.add_merge(text.substr(0, blank), text.substr(blank + 1));
    } else {
      const bool is_pair = merge.is_array() && merge.elements().size() == 2 && merge.elements()[0].is_string() &&
                           merge.elements()[1].is_string();
      if (!is_pair) builder.fail_here("is ", merge.kind(), "; a pair of tokens is wanted");
      builder.add_merge(merge.elements()[0].string(), merge.elements()[1].string());
    }
  }
}

// A step of the file that is exactly this.
void check_step(const Node& step, const JsonValue& wanted) {
  if (step.value() != wanted) step.refuse("", "is not read here; with byte_fallback ", write_json(wanted), " is");
}

JsonValue replacing(std::string_view from, std::string_view to) {
  return JsonValue::object({{"type", "Replace"}, {"pattern", JsonValue::object({{"String", from}})}, {"content", to}});
}
JsonValue sequence_of(const char* name, JsonValue::Array steps) {
  return JsonValue::object({{"type", "Sequence"}, {name, JsonValue(std::move(steps))}});
}

// What stands around a model with byte fallback, in the only forms that are read: that of LLaMA, with a blank in front
// of the text, and the same without.
JsonValue fallback_normalizer(bool leading_blank) {
  const JsonValue blanks = replacing(" ", written_blank);
  if (!leading_blank) return blanks;
  return sequence_of("normalizers", {JsonValue::object({{"type", "Prepend"}, {"prepend", written_blank}}), blanks});
}
JsonValue fallback_decoder(bool leading_blank) {
  JsonValue::Array steps{replacing(written_blank, " "), JsonValue::object({{"type", "ByteFallback"}}),
                         JsonValue::object({{"type", "Fuse"}})};
  if (leading_blank) {
    steps.push_back(JsonValue::object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  }
  return sequence_of("decoders", std::move(steps));
}

void read_fallback_steps(const Node& file, VocabularyBuilder& builder) {
  builder.use_byte_fallback();
  if (file.absent("normalizer")) {
    file.child("model").refuse("byte_fallback", "goes with a normalizer that writes blanks as U+2581; there is none");
  }
  const Node normalizer = file.child("normalizer");
  builder.parts.leading_blank = normalizer.value() != fallback_normalizer(false);
  check_step(normalizer, fallback_normalizer(builder.parts.leading_blank));
  if (!file.absent("pre_tokenizer")) {
    file.refuse("pre_tokenizer", "is not read with byte_fallback unless it is null; blanks are the normalizer's");
  }
  check_step(file.child("decoder"), fallback_decoder(builder.parts.leading_blank));
  builder.parts.notes.emplace_back("U+2581 in a text becomes a blank");
}

// Pieces across whose borders no merge can go: before the blanks of a word, where no token has a blank behind another
// character; else the whole text is one.
std::string fallback_pattern(const TokenizerParts& parts) {
  const auto has_blank_behind = [](const std::string& token) {
    const std::size_t first = token.find_first_not_of(' ');
    return first != token.npos && token.find(' ', first) != token.npos;
  };
  return std::ranges::any_of(parts.tokens, has_blank_behind) ? R"([\s\S]+)" : " *[^ ]+| +";
}

void read_model(const Node& model, VocabularyBuilder& builder) {
  model.check_object();
  model.check_names({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                     "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const bool is_empty = !model.absent(name) && model.member(name).is_string() && model.text(name).empty();
    if (!is_empty) model.check_absent({name});
  }
  model.check_absent({"dropout"});
  if (const bool byte_fallback = model.flag("byte_fallback", false); byte_fallback) {
    model.check_flag("ignore_merges", false);  // nothing is unknown, so that unk_token and fuse_unk say nothing
  } else {
    model.check_absent({"unk_token"});
    model.check_flag("fuse_unk", false);
    builder.parts.ignore_merges = model.flag("ignore_merges", false);
  }
  const Node vocabulary = model.child("vocab");
  vocabulary.check_object();
  builder.at("model.vocab");
  for (const JsonMember& token : vocabulary.value().members()) {
    if (!token.value.is_integer()) {
      builder.fail_here("'", escape_for_print(token.name), "' is ", token.value.kind(), "; an integer is wanted");
    }
    builder.add_written(token.name, token.value.integer());
  }
  builder.finish_tokens();
  read_merges(model, builder);
  if (builder.parts.has_byte_fallback()) builder.parts.pattern = fallback_pattern(builder.parts);
}

JsonValue byte_level_json(bool use_regex) {
  return JsonValue::object(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}});
}

JsonValue pre_tokenizer_json(const std::string& pattern) {
  if (split_pattern_name(pattern) == "gpt2") return byte_level_json(true);
  const JsonValue split = JsonValue::object({{"type", "Split"},
                                             {"pattern", JsonValue::object({{"Regex", split_pattern_text(pattern)}})},
                                             {"behavior", "Isolated"},
                                             {"invert", false}});
  return JsonValue::object(
      {{"type", "Sequence"}, {"pretokenizers", JsonValue(JsonValue::Array{split, byte_level_json(false)})}});
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& source) {
  const JsonLimits limits{.max_depth = 16, .max_values = 10'000'000, .max_token_bytes = 1 << 20};
  const JsonValue value = parse_json(text, limits, source);
  const Node file(value, escape_for_print(source, 1000), "");
  file.check_names({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                    "decoder", "model"});
  if (!file.absent("version") && file.text("version") != "1.0") file.refuse("version", "only \"1.0\" is known");
  file.check_absent({"truncation", "padding"});
  const JsonValue* const model = value.find("model");
  const bool has_model = model != nullptr && model->is_object();
  // Another kind has other steps as well, of which none is what is wrong.
  if (has_model && file.child("model").text("type") != "BPE") {
    file.child("model").refuse("type", "'", escape_for_print(file.child("model").text("type")),
                               "' is not read; BPE is");
  }
  VocabularyBuilder builder(escape_for_print(source, 1000));
  read_added_tokens(file, builder);
  if (has_model && file.child("model").flag("byte_fallback", false)) {
    read_fallback_steps(file, builder);
  } else {
    read_byte_level_steps(file, builder);
  }
  if (!file.absent("post_processor")) {
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
    const bool is_added = std::ranges::binary_search(parts.added, id);
    if (!parts.tokens[static_cast<std::size_t>(id)].empty() && !is_added) vocabulary.push_back({written(id), id});
  }
  const auto add = [&](std::int32_t id, const std::string& content, bool is_special) {
    added.push(JsonValue::object({{"id", id},
                                  {"content", content},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", is_special}}));
  };
  for (const SpecialToken& special : parts.specials) add(special.id, special.name, true);
  for (const std::int32_t id : parts.added) add(id, parts.tokens[static_cast<std::size_t>(id)], false);
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
  const JsonValue normalizer = byte_fallback ? fallback_normalizer(parts.leading_blank)
                               : parts.nfc   ? JsonValue::object({{"type", "NFC"}})
                                             : JsonValue();
  return write_json(JsonValue::object(
                        {{"version", "1.0"},
                         {"truncation", {}},
                         {"padding", {}},
                         {"added_tokens", std::move(added)},
                         {"normalizer", normalizer},
                         {"pre_tokenizer", byte_fallback ? JsonValue() : pre_tokenizer_json(parts.pattern)},
                         {"post_processor", {}},
                         {"decoder", byte_fallback ? fallback_decoder(parts.leading_blank) : byte_level_json(true)},
                         {"model", model}}),
                    1) +
         "\n";
}

}  // namespace tally
