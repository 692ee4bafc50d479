#include "tasks/text/tokenizer_steps.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "tasks/text/byte_characters.hpp"

namespace tally {
namespace {

using Node = TokenizerNode;
using Steps = JsonValue::Array;

constexpr std::array<std::pair<const char*, SplitBehaviour>, 5> behaviours{
    {{"Isolated", SplitBehaviour::isolated},
     {"Removed", SplitBehaviour::removed},
     {"MergedWithPrevious", SplitBehaviour::merged_with_previous},
     {"MergedWithNext", SplitBehaviour::merged_with_next},
     {"Contiguous", SplitBehaviour::contiguous}}};
constexpr std::array<std::pair<const char*, Blanks>, 3> prepend_schemes{
    {{"never", Blanks::metaspace_never}, {"first", Blanks::metaspace_first}, {"always", Blanks::metaspace_always}}};
constexpr const char* digit = R"(\p{N})";
// Metaspace with "split": every blank begins a piece.
constexpr const char* metaspace_pieces = " [^ ]*|[^ ]+";

// The value of a name. An unknown name throws Error with the list of names.
template <class Value, std::size_t count>
Value one_of(const Node& node, std::string_view member, const std::array<std::pair<const char*, Value>, count>& known) {
  const std::string& name = node.text(member);
  std::string list;
  for (const auto& [known_name, value] : known) {
    if (name == known_name) return value;
    list += formatted("{}{}", list.empty() ? "" : ", ", known_name);
  }
  node.refuse(member, "'{}' is not known; one of {} is", escape_for_print(name), list);
}
template <class Value, std::size_t count>
const char* name_of(Value wanted, const std::array<std::pair<const char*, Value>, count>& known) {
  return std::ranges::find(known, wanted, &std::pair<const char*, Value>::second)->first;
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

// A single step is returned as is, several as a sequence, none as null.
JsonValue joined(const char* list, Steps steps) {
  if (steps.empty()) return {};
  if (steps.size() == 1) return std::move(steps[0]);
  return JsonValue::object({{"type", "Sequence"}, {list, JsonValue(std::move(steps))}});
}

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
  const Blanks blanks =
      step.absent("prepend_scheme") ? Blanks::metaspace_always : one_of(step, "prepend_scheme", prepend_schemes);
  // Older files have this flag.
  if (!step.flag("add_prefix_space", true) && blanks != Blanks::metaspace_never) {
    step.refuse("add_prefix_space", "is false, and prepend_scheme is not \"never\"; the two contradict each other");
  }
  if (step.flag("split", true)) parts.steps = {{metaspace_pieces}};
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
      if (step.flag("use_regex", true)) parts.steps.push_back({"gpt2"});
    } else if (type == "Split") {
      step.check_names({"type", "pattern", "behavior", "invert"});
      parts.steps.push_back({pattern_of(step), one_of(step, "behavior", behaviours), step.flag("invert", false)});
    } else if (type == "Digits") {
      step.check_names({"type", "individual_digits"});
      const bool individual = step.flag("individual_digits", false);
      parts.steps.push_back({digit, individual ? SplitBehaviour::isolated : SplitBehaviour::contiguous});
    } else {
      refuse_type(step, "Split and Digits are, and ByteLevel behind them");
    }
  }
}

Steps fallback_decoders(bool leading_blank) {
  Steps steps{replacing(written_blank, " "), JsonValue::object({{"type", "ByteFallback"}}),
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
  const Steps wanted = fallback_decoders(parts.has_leading_blank());
  const auto is_same = [](const Node& step, const JsonValue& one) { return step.value() == one; };
  if (!std::equal(steps.begin(), steps.end(), wanted.begin(), wanted.end(), is_same)) {
    file.refuse("decoder", "is not read here; with byte_fallback and this treatment of blanks {} is",
                write_json(joined("decoders", wanted)));
  }
}

JsonValue byte_level_json(bool use_regex) {
  return JsonValue::object(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}});
}

JsonValue split_json(const SplitStep& step) {
  if (step == SplitStep{digit} || step == SplitStep{digit, SplitBehaviour::contiguous}) {
    return JsonValue::object({{"type", "Digits"}, {"individual_digits", step.behaviour == SplitBehaviour::isolated}});
  }
  return JsonValue::object({{"type", "Split"},
                            {"pattern", JsonValue::object({{"Regex", split_pattern_text(step.pattern)}})},
                            {"behavior", name_of(step.behaviour, behaviours)},
                            {"invert", step.invert}});
}

}  // namespace

void read_tokenizer_steps(const TokenizerNode& file, bool byte_fallback, TokenizerParts& parts) {
  read_normalizer(file, byte_fallback, parts);
  if (byte_fallback) {
    read_fallback_pre_tokenizer(file, parts);
    parts.notes.emplace_back("U+2581 in a text becomes a blank");
  } else {
    read_byte_level_pre_tokenizer(file, parts);
  }
  for (const SplitStep& step : parts.steps) {
    if (step.behaviour == SplitBehaviour::removed) {
      parts.notes.push_back(formatted("what {}{}' is dropped from a text",
                                      step.invert ? "does not match '" : "matches '", escape_for_print(step.pattern)));
    }
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
  parts.steps = {{is_whole ? R"([\s\S]+)" : " *[^ ]+| +"}};
}

JsonValue normalizer_json(const TokenizerParts& parts) {
  Steps steps;
  for (const NormalForm form : parts.normal_forms) {
    steps.push_back(JsonValue::object({{"type", normal_form_name(form)}}));
  }
  if (parts.has_byte_fallback() && parts.blanks == Blanks::prepended) steps.push_back(prepending());
  if (parts.has_byte_fallback() && (parts.blanks == Blanks::prepended || parts.blanks == Blanks::replaced)) {
    steps.push_back(replacing(" ", written_blank));
  }
  return joined("normalizers", std::move(steps));
}

JsonValue pre_tokenizer_json(const TokenizerParts& parts) {
  if (parts.has_byte_fallback()) {
    if (parts.blanks == Blanks::prepended || parts.blanks == Blanks::replaced) return {};
    return JsonValue::object({{"type", "Metaspace"},
                              {"replacement", written_blank},
                              {"prepend_scheme", name_of(parts.blanks, prepend_schemes)},
                              {"split", parts.steps == std::vector<SplitStep>{{metaspace_pieces}}}});
  }
  Steps steps;
  const bool use_regex = !parts.steps.empty() && parts.steps.back() == SplitStep{"gpt2"};
  for (std::size_t index = 0; index < parts.steps.size() - (use_regex ? 1 : 0); ++index) {
    steps.push_back(split_json(parts.steps[index]));
  }
  steps.push_back(byte_level_json(use_regex));
  return joined("pretokenizers", std::move(steps));
}

JsonValue decoder_json(const TokenizerParts& parts) {
  if (!parts.has_byte_fallback()) return byte_level_json(true);
  return joined("decoders", fallback_decoders(parts.has_leading_blank()));
}

}  // namespace tally
