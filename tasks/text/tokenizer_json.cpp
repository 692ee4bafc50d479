// tokenizer.json: {"version": "1.0", "truncation": null, "padding": null, "added_tokens": [...], "normalizer": ...,
// "pre_tokenizer": ..., "post_processor": ..., "decoder": ..., "model": {"type": "BPE", "vocab": {...}, "merges":
// [...]}}
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/tokenizer.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tasks/text/vocabulary.hpp"

namespace tally {
namespace {

// An object of the file with its location, "pre_tokenizer.pretokenizers[0]", for messages.
class Node {
 public:
  using Names = std::initializer_list<std::string_view>;

  Node(const JsonValue& value, std::string source, std::string path)
      : value_(value), source_(std::move(source)), path_(std::move(path)) {}

  template <class... Parts>
  [[noreturn]] void refuse(std::string_view member, Message<Parts...> fault, const Parts&... parts) const {
    const std::string path = member.empty() ? path_ : path_of(escape_for_print(member));
    fail("tokenizer", "{}: {}: {}", source_, path.empty() ? "the file" : path, formatted(fault, parts...));
  }
  void check_object() const {
    if (!value_.is_object()) refuse("", "is {}; an object is wanted", value_.kind());
  }
  // Throws unless the object has only these members.
  void check_names(Names names) const {
    check_object();
    for (const JsonMember& member : value_.members()) {
      if (std::find(names.begin(), names.end(), member.name) == names.end()) refuse(member.name, "is not known here");
    }
  }
  // Whether the member is null or missing.
  bool absent(std::string_view name) const {
    const JsonValue* member = value_.find(name);
    return member == nullptr || member->is_null();
  }
  void check_absent(std::string_view name) const {
    if (!absent(name)) refuse(name, "is not read here unless it is null");
  }
  Node child(std::string_view name) const { return {member(name), source_, path_of(name)}; }
  std::vector<Node> elements(std::string_view name) const {
    std::vector<Node> nodes;
    for (const JsonValue& element : member(name, &JsonValue::is_array, "an array").elements()) {
      nodes.emplace_back(element, source_, formatted("{}[{}]", path_of(name), nodes.size()));
    }
    return nodes;
  }
  const std::string& text(std::string_view name) const {
    return member(name, &JsonValue::is_string, "a string").string();
  }
  std::int64_t integer(std::string_view name) const {
    return member(name, &JsonValue::is_integer, "an integer").integer();
  }
  bool flag(std::string_view name, bool otherwise) const {
    return absent(name) ? otherwise : member(name, &JsonValue::is_bool, "true or false").boolean();
  }
  // Throws unless the flag has the only supported value.
  void check_flag(std::string_view name, bool wanted) const {
    if (flag(name, wanted) != wanted) refuse(name, "is not read here when it is {}", !wanted);
  }
  const JsonValue& value() const { return value_; }

 private:
  std::string path_of(std::string_view member) const {
    return path_.empty() ? std::string(member) : formatted("{}.{}", path_, member);
  }
  const JsonValue& member(std::string_view name) const {
    const JsonValue* found = value_.find(name);
    if (found == nullptr) refuse(name, "is missing");
    return *found;
  }
  const JsonValue& member(std::string_view name, bool (JsonValue::*is)() const, std::string_view wanted) const {
    const JsonValue& found = member(name);
    if (!(found.*is)()) refuse(name, "is {}; {} is wanted", found.kind(), wanted);
    return found;
  }

  const JsonValue& value_;
  std::string source_, path_;
};

constexpr std::array<std::pair<const char*, Blanks>, 3> prepend_schemes{
    {{"never", Blanks::metaspace_never}, {"first", Blanks::metaspace_first}, {"always", Blanks::metaspace_always}}};
// Metaspace with "split": every blank begins a piece.
constexpr const char* metaspace_pieces = " [^ ]*|[^ ]+";

Blanks prepend_scheme_of(const Node& metaspace) {
  const std::string& name = metaspace.text("prepend_scheme");
  for (const auto& [known, blanks] : prepend_schemes) {
    if (name == known) return blanks;
  }
  metaspace.refuse("prepend_scheme", "'{}' is not known; never, first and always are", escape_for_print(name));
}

// The steps of a member, with nested sequences flattened; none if it is null.
void append_steps(const Node& node, const char* list, std::vector<Node>& steps) {
  if (node.text("type") != "Sequence") {
    steps.push_back(node);
    return;
  }
  node.check_names({"type", list});
  for (const Node& step : node.elements(list)) append_steps(step, list, steps);
}
std::vector<Node> steps_of(const Node& file, const char* member, const char* list) {
  std::vector<Node> steps;
  if (!file.absent(member)) append_steps(file.child(member), list, steps);
  return steps;
}

[[noreturn]] void refuse_type(const Node& step, std::string_view read) {
  step.refuse("type", "'{}' is not read; {}", escape_for_print(step.text("type")), read);
}

JsonValue replacing(std::string_view from, std::string_view to) {
  return JsonValue::object({{"type", "Replace"}, {"pattern", JsonValue::object({{"String", from}})}, {"content", to}});
}
JsonValue prepending() { return JsonValue::object({{"type", "Prepend"}, {"prepend", written_blank}}); }

void read_normalizer(const Node& file, bool byte_fallback, TokenizerParts& parts) {
  bool prepends = false, replaces = false;
  for (const Node& step : steps_of(file, "normalizer", "normalizers")) {
    const std::optional<NormalForm> form = normal_form_of(step.text("type"));
    if (form && !prepends && !replaces) {
      step.check_names({"type"});
      parts.normal_forms.push_back(*form);
    } else if (byte_fallback && !prepends && step.value() == prepending()) {
      prepends = true;
    } else if (byte_fallback && !replaces && step.value() == replacing(" ", written_blank)) {
      replaces = true;
    } else if (byte_fallback) {
      step.refuse("", "is not read here; with byte_fallback NFC, NFD, NFKC and NFKD are, and then {} and {}",
                  write_json(prepending()), write_json(replacing(" ", written_blank)));
    } else {
      refuse_type(step, "NFC, NFD, NFKC and NFKD are");
    }
  }
  if (prepends && !replaces) file.refuse("normalizer", "puts U+2581 in front of a text and leaves its blanks");
  parts.blanks = prepends ? Blanks::prepended : Blanks::replaced;
  if (byte_fallback && !replaces) parts.blanks = Blanks::metaspace_never;  // which must follow
}

Blanks read_metaspace(const Node& step, TokenizerParts& parts) {
  step.check_names({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  if (step.text("replacement") != written_blank) step.refuse("replacement", "only U+2581 is read");
  const Blanks blanks = step.absent("prepend_scheme") ? Blanks::metaspace_always : prepend_scheme_of(step);
  // Older files have this flag.
  if (!step.flag("add_prefix_space", true) && blanks != Blanks::metaspace_never) {
    step.refuse("add_prefix_space", "is false, and prepend_scheme is not \"never\"; the two contradict each other");
  }
  if (step.flag("split", true)) parts.steps = {metaspace_pieces};
  return blanks;
}

void read_fallback_pre_tokenizer(const Node& file, TokenizerParts& parts) {
  parts.steps.clear();
  const bool are_written = parts.blanks != Blanks::metaspace_never;  // by the normaliser
  bool has_metaspace = false;
  for (const Node& step : steps_of(file, "pre_tokenizer", "pretokenizers")) {
    const bool splits_at_blanks = step.text("type") == "Split" &&
                                  step.child("pattern").value().find("String") != nullptr &&
                                  step.child("pattern").text("String") == " ";
    if (splits_at_blanks && are_written) continue;  // there are none
    if (step.text("type") != "Metaspace" || are_written || has_metaspace) {
      step.refuse("type", "'{}' is not read with byte_fallback; Metaspace is, where the normalizer writes no blanks",
                  escape_for_print(step.text("type")));
    }
    parts.blanks = read_metaspace(step, parts);
    has_metaspace = true;
  }
  if (!are_written && !has_metaspace) {
    file.child("model").refuse(
        "byte_fallback",
        "goes with a normalizer or a pre-tokenizer Metaspace that writes blanks as U+2581; there is none");
  }
}

// The pattern as PCRE2 understands it. "$" is the end of a line in files of this kind.
std::string pattern_of(const Node& split) {
  const Node pattern = split.child("pattern");
  pattern.check_names({"Regex", "String"});
  std::string text;
  if (!pattern.absent("String")) {
    for (const char c : pattern.text("String")) {
      if (std::ispunct(static_cast<unsigned char>(c)) != 0) text += '\\';
      text += c;
    }
    return text;
  }
  const std::string& regex = pattern.text("Regex");
  bool in_class = false;
  for (std::size_t at = 0; at < regex.size(); ++at) {
    const char c = regex[at];
    if (c == '\\' && at + 1 < regex.size()) {
      text += c;
      text += regex[++at];
      continue;
    }
    if (c == '[' || c == ']') in_class = c == '[';
    text += c == '$' && !in_class ? std::string(R"((?![^\n]))") : std::string(1, c);
  }
  return std::string(split_pattern_name(text));
}

void check_byte_level(const Node& step) {
  step.check_names({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (step.text("type") != "ByteLevel") refuse_type(step, "ByteLevel is");
}

void read_byte_level_pre_tokenizer(const Node& file, TokenizerParts& parts) {
  file.child("pre_tokenizer").check_object();
  const std::vector<Node> steps = steps_of(file, "pre_tokenizer", "pretokenizers");
  if (steps.empty()) file.refuse("pre_tokenizer", "has no steps; ByteLevel is wanted");
  parts.steps.clear();
  for (std::size_t index = 0; index < steps.size(); ++index) {
    const Node& step = steps[index];
    const std::string& type = step.text("type");
    if (index + 1 == steps.size()) {
      if (type != "ByteLevel") refuse_type(step, "ByteLevel is, as the last step");
      check_byte_level(step);
      step.check_flag("add_prefix_space", false);
      if (step.flag("use_regex", true)) parts.steps.emplace_back("gpt2");
    } else if (type == "Split") {
      step.check_names({"type", "pattern", "behavior", "invert"});
      if (step.text("behavior") != "Isolated") {
        step.refuse("behavior", "'{}' is not read; Isolated is", escape_for_print(step.text("behavior")));
      }
      parts.steps.push_back(pattern_of(step));
    } else if (type == "Digits") {
      step.check_names({"type", "individual_digits"});
      parts.steps.emplace_back(step.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else {
      refuse_type(step, "Split and Digits are, and ByteLevel behind them");
    }
  }
}

JsonValue::Array fallback_decoders(bool leading_blank) {
  JsonValue::Array steps{replacing(written_blank, " "), JsonValue::object({{"type", "ByteFallback"}}),
                         JsonValue::object({{"type", "Fuse"}})};
  if (leading_blank) {
    steps.push_back(JsonValue::object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  }
  return steps;
}

void read_decoder(const Node& file, bool byte_fallback, const TokenizerParts& parts) {
  file.child("decoder").check_object();
  const std::vector<Node> steps = steps_of(file, "decoder", "decoders");
  if (!byte_fallback) {
    if (steps.size() != 1) file.refuse("decoder", "has {} steps; ByteLevel by itself is read", steps.size());
    return check_byte_level(steps[0]);
  }
  const JsonValue::Array wanted = fallback_decoders(parts.has_leading_blank());
  const auto is_same = [](const Node& step, const JsonValue& one) { return step.value() == one; };
  if (!std::equal(steps.begin(), steps.end(), wanted.begin(), wanted.end(), is_same)) {
    file.refuse("decoder", "is not read here; with byte_fallback and this treatment of blanks {} are",
                write_json(JsonValue(wanted)));
  }
}

JsonValue byte_level_json(bool use_regex) {
  return JsonValue::object(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}});
}

// Reads the steps around the model ("normalizer", "pre_tokenizer" and "decoder") into the parts, for a model with byte
// fallback or a byte-level one. Throws Error naming the unsupported member and the supported ones.
void read_tokenizer_steps(const Node& file, bool byte_fallback, TokenizerParts& parts) {
  read_normalizer(file, byte_fallback, parts);
  if (byte_fallback) {
    read_fallback_pre_tokenizer(file, parts);
    parts.notes.emplace_back("U+2581 in a text becomes a blank");
  } else {
    read_byte_level_pre_tokenizer(file, parts);
  }
  TokenizerParts with_tokens;  // for has_leading_blank()
  with_tokens.blanks = parts.blanks;
  with_tokens.byte_tokens.resize(byte_fallback ? byte_count : 0);
  read_decoder(file, byte_fallback, with_tokens);
}

// Cuts before the blanks of a word, unless some token has a blank after another character. In that case the whole text
// is a single piece.
void set_fallback_pattern(TokenizerParts& parts) {
  if (!parts.steps.empty()) return;
  const auto has_blank_behind = [](const std::string& token) {
    const std::size_t first = token.find_first_not_of(' ');
    return first != token.npos && token.find(' ', first) != token.npos;
  };
  const bool is_whole = std::ranges::any_of(parts.tokens, has_blank_behind);
  parts.steps = {is_whole ? R"([\s\S]+)" : " *[^ ]+| +"};
}

void read_added_tokens(const Node& file, VocabularyBuilder& builder) {
  if (file.absent("added_tokens")) return;
  for (const Node& token : file.elements("added_tokens")) {
    token.check_names({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    token.check_flag("single_word", false);
    const AddedFlags flags{.lstrip = token.flag("lstrip", false),
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
  const JsonLimits limits{.max_depth = 16, .max_values = 10'000'000};
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
  builder.parts.json = text;
  return std::move(builder.parts);
}

// A byte-level tokenizer with one pattern: one that was trained, or read from files of another kind.
std::string tokenizer_json(const TokenizerParts& parts) {
  if (!parts.json.empty()) return parts.json;
  check_internal(parts.steps.size() == 1 && !parts.has_byte_fallback() && parts.normal_forms.empty(), "tokenizer",
                 "its steps cannot be written");
  JsonValue added = JsonValue::array(), merges = JsonValue::array();
  JsonValue::Object vocabulary;
  const auto written = [&](std::int32_t id) { return byte_characters(parts.tokens[static_cast<std::size_t>(id)]); };
  for (std::int32_t id = 0; std::cmp_less(id, parts.tokens.size()); ++id) {
    if (parts.is_of_model(id)) vocabulary.push_back({written(id), id});
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
  for (const AddedToken& token : parts.added) add(token.id, token.text, false);
  for (const MergedPair& merge : parts.merges) {
    merges.push(JsonValue(JsonValue::Array{written(merge.left), written(merge.right)}));
  }
  const JsonValue model = JsonValue::object({{"type", "BPE"},
                                             {"dropout", {}},
                                             {"unk_token", {}},
                                             {"continuing_subword_prefix", {}},
                                             {"end_of_word_suffix", {}},
                                             {"fuse_unk", false},
                                             {"byte_fallback", false},
                                             {"ignore_merges", parts.ignore_merges},
                                             {"vocab", std::move(vocabulary)},
                                             {"merges", std::move(merges)}});
  const std::string& pattern = parts.steps.front();
  JsonValue pre_tokenizer = byte_level_json(pattern == "gpt2");
  if (pattern != "gpt2") {
    const JsonValue split = JsonValue::object({{"type", "Split"},
                                               {"pattern", JsonValue::object({{"Regex", split_pattern_text(pattern)}})},
                                               {"behavior", "Isolated"},
                                               {"invert", false}});
    pre_tokenizer =
        JsonValue::object({{"type", "Sequence"}, {"pretokenizers", JsonValue::Array{split, std::move(pre_tokenizer)}}});
  }
  return write_json(JsonValue::object({{"version", "1.0"},
                                       {"truncation", {}},
                                       {"padding", {}},
                                       {"added_tokens", std::move(added)},
                                       {"normalizer", {}},
                                       {"pre_tokenizer", std::move(pre_tokenizer)},
                                       {"post_processor", {}},
                                       {"decoder", byte_level_json(true)},
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
