#include "tasks/text/vocabulary.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/io/base64.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {

void VocabularyBuilder::add(std::string bytes, std::int64_t id, Kind kind, const AddedFlags& flags) {
  if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
    fail_here("'{}' has the id {}; ids are 0 to the number of tokens less one", escape_for_print(bytes), id);
  }
  tokens_.push_back({std::move(bytes), static_cast<std::int32_t>(id), kind, flags});
}

void VocabularyBuilder::add_named(const std::string& name, std::int64_t id, Kind kind, const AddedFlags& flags) {
  if (name.empty()) fail_here("a special token without a name");
  if (named_.contains(name)) fail_here("'{}' is there twice", escape_for_print(name));
  add(name, id, kind, flags);
  named_[name] = tokens_.size() - 1;
}

void VocabularyBuilder::add_special(const std::string& name, std::int64_t id, const AddedFlags& flags) {
  add_named(name, id, Kind::special, flags);
  parts.specials.push_back({name, static_cast<std::int32_t>(id), flags});
}

void VocabularyBuilder::add_added(const std::string& text, std::int64_t id, const AddedFlags& flags) {
  add_named(text, id, Kind::added, flags);
}

void VocabularyBuilder::add_written(const JsonValue& tokens) {
  if (!tokens.is_object()) fail_here("is {}; an object of tokens and ids is wanted", tokens.kind());
  for (const auto& [written, id] : tokens.members()) {
    if (!id.is_integer()) fail_here("'{}' is {}; an integer is wanted", escape_for_print(written), id.kind());
    add_written(written, id.integer());
  }
}

void VocabularyBuilder::add_written(const std::string& written, std::int64_t id) {
  if (const auto named = named_.find(written); named != named_.end()) {
    Token& token = tokens_[named->second];
    if (token.id != id) fail_here("'{}' has the ids {} and {}", escape_for_print(written), token.id, id);
    if (token.kind == Kind::added) token.made = bytes_of(written);
    return;
  }
  if (const std::optional<char> byte = byte_fallback_ ? byte_of_token(written) : std::nullopt) {
    return add(std::string(1, *byte), id, Kind::byte);
  }
  std::optional<std::string> bytes = bytes_of(written);
  if (!bytes) fail_here("'{}' holds a character that stands for no byte", escape_for_print(written));
  add_bytes(std::move(*bytes), id);
}

std::optional<std::string> VocabularyBuilder::bytes_of(std::string_view written) const {
  return byte_fallback_ ? blanks_read(written) : bytes_of_characters(written);
}

void VocabularyBuilder::add_bytes(std::string bytes, std::int64_t id) {
  if (bytes.empty()) fail_here("a token without bytes, with the id {}", id);
  add(std::move(bytes), id, Kind::plain);
}

void VocabularyBuilder::finish_tokens() {
  std::ranges::stable_sort(tokens_, {}, &Token::id);
  parts.tokens.reserve(tokens_.size());
  for (const Token& token : tokens_) {
    const auto next = static_cast<std::int64_t>(parts.tokens.size());
    if (token.id < next)
      fail_here("the id {} stands for two tokens, '{}' and another", token.id, escape_for_print(token.bytes));
    if (token.id > next) fail_here("no token has the id {}, but one has {}", next, token.id);
    const bool is_of_model = token.kind == Kind::plain || token.made.has_value();
    const std::string& bytes = token.made ? *token.made : token.bytes;
    if (is_of_model && find(bytes) >= 0) fail_here("the token '{}' is there twice", escape_for_print(bytes));
    parts.tokens.push_back(token.kind == Kind::special ? std::string() : bytes);
    if (is_of_model) index_.emplace(parts.tokens.back(), token.id);
    if (token.kind == Kind::added) parts.added.push_back({token.bytes, token.id, token.flags, is_of_model});
    if (token.kind == Kind::byte) {
      const auto byte = static_cast<unsigned char>(parts.tokens.back()[0]);
      if (parts.byte_tokens.empty()) parts.byte_tokens.assign(byte_count, -1);
      if (parts.byte_tokens[byte] >= 0) fail_here("the token {} is there twice", byte_token(byte));
      parts.byte_tokens[byte] = token.id;
    }
  }
  tokens_ = {};
  std::ranges::sort(parts.specials, {}, &SpecialToken::id);
  for (int byte = 0; byte < byte_count; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    if (byte_fallback_ && (parts.byte_tokens.empty() || parts.byte_tokens[static_cast<std::size_t>(byte)] < 0)) {
      fail_here("there is no token {}; byte_fallback needs all 256", byte_token(byte));
    }
    if (!byte_fallback_ && find(bytes) < 0) {
      fail_here("no token is the byte {} alone, written '{}'", byte, byte_characters(bytes));
    }
  }
}

std::int32_t VocabularyBuilder::find(std::string_view bytes) const {
  const auto found = index_.find(bytes);
  return found != index_.end() ? found->second : -1;
}

std::int32_t VocabularyBuilder::find_written(std::string_view written) const {
  const std::optional<std::string> bytes = bytes_of(written);
  const std::int32_t id = bytes ? find(*bytes) : -1;
  if (id < 0) fail_here("'{}' is no token of the vocabulary", escape_for_print(written));
  return id;
}

void VocabularyBuilder::add_merge(std::string_view both) {
  const std::size_t blank = std::min(both.find(' '), both.size());
  const std::string_view left = both.substr(0, blank), right = both.substr(std::min(blank + 1, both.size()));
  if (left.empty() || right.empty() || right.find(' ') != right.npos) {
    fail_here("'{}'; two tokens with one blank between are wanted", escape_for_print(both));
  }
  add_merge(left, right);
}

void VocabularyBuilder::add_merge(std::string_view left, std::string_view right) {
  const std::int32_t left_id = find_written(left), right_id = find_written(right);
  const auto bytes = [&](std::int32_t id) -> const std::string& { return parts.tokens[static_cast<std::size_t>(id)]; };
  const std::int32_t result = find(bytes(left_id) + bytes(right_id));
  if (result < 0) fail_here("'{}' and '{}' together are no token", escape_for_print(left), escape_for_print(right));
  parts.merges.push_back({left_id, right_id, result, static_cast<std::int32_t>(parts.merges.size())});
}

void VocabularyBuilder::add_all_pairs() {
  const std::size_t count = parts.tokens.size();
  for (std::size_t id = 0; id < count; ++id) {
    const std::string& whole = parts.tokens[id];
    constexpr std::size_t longest = 1024;  // every cut of a token is tried
    if (whole.size() > longest) fail_here("the token {} has {} bytes; {} at most", id, whole.size(), longest);
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
      const std::int32_t left = find(std::string_view(whole).substr(0, cut));
      const std::int32_t right = left < 0 ? -1 : find(std::string_view(whole).substr(cut));
      const auto rank = static_cast<std::int32_t>(id);
      if (right >= 0) parts.merges.push_back({left, right, rank, rank});
    }
  }
}

namespace {

constexpr std::uint64_t max_bytes = std::uint64_t{1} << 28;

// Calls take(line, number) for each line without its end; "\r\n" also ends a line.
template <class Take>
void for_each_line(std::string_view text, Take&& take) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    take(line, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Adds the unused ids between the last rank and the special tokens; cl100k has one.
void add_unused(VocabularyBuilder& builder, const std::vector<SpecialToken>& specials, std::int64_t behind) {
  std::int32_t last = 0;
  for (const SpecialToken& special : specials) last = std::max(last, special.id);
  constexpr std::int64_t most = 1 << 16;
  if (last - behind > most) {
    builder.fail_here("end with {}; the special token {} lies more than {} behind them", behind - 1, last, most);
  }
  for (std::int64_t id = behind; id < last; ++id) {
    if (std::ranges::find(specials, id, &SpecialToken::id) != specials.end()) continue;
    builder.add_special(formatted("<|unused-{}|>", id), id);
  }
}

}  // namespace

SpecialToken parse_special(std::string_view text) {
  const std::size_t equals = std::min(text.rfind('='), text.size());
  const std::string_view written = text.substr(std::min(equals + 1, text.size()));
  const std::optional<std::int32_t> id = token_id(written);
  check(id && equals > 0, "tokenizer",
        "'{}'; the name of a special token, = and its id are wanted, as in <|endoftext|>=100257",
        escape_for_print(text));
  return {std::string(text.substr(0, equals)), *id};
}

TokenizerParts parse_vocabulary(std::string_view vocabulary, const std::string& vocabulary_source,
                                std::string_view merges, const std::string& merges_source) {
  const JsonLimits limits{.max_depth = 2, .integers_only = true};
  const JsonValue tokens = parse_json(vocabulary, limits, vocabulary_source);
  VocabularyBuilder builder(escape_for_print(vocabulary_source, 1000));
  builder.at("the vocabulary");
  const JsonValue* const end = tokens.is_object() ? tokens.find(end_of_text_name) : nullptr;
  if (end != nullptr && end->is_integer()) builder.add_special(std::string(end_of_text_name), end->integer());
  builder.add_written(tokens);
  builder.finish_tokens();
  builder.set_source(escape_for_print(merges_source, 1000));
  for_each_line(merges, [&](std::string_view line, std::size_t number) {
    // "#version: 0.2" is only valid in the first line; elsewhere '#' begins a merge like any other character.
    if ((number == 1 && line.starts_with("#version")) || line.empty()) return;
    builder.at(formatted("line {}", number));
    builder.add_merge(line);
  });
  return std::move(builder.parts);
}

TokenizerParts parse_tiktoken(std::string_view text, const std::string& source, std::string_view pattern,
                              const std::vector<SpecialToken>& specials) {
  VocabularyBuilder builder(escape_for_print(source, 1000));
  builder.at("the special tokens");
  for (const SpecialToken& special : specials) builder.add_special(special.name, special.id);
  std::int64_t behind = 0;  // one past the last rank
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    if (line.empty()) return;
    builder.at(formatted("line {}", number));
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::optional<std::string> bytes = from_base64(line.substr(0, blank));
    if (!bytes) builder.fail_here("'{}' is not base64", escape_for_print(line.substr(0, blank), 60));
    const std::string_view written = line.substr(std::min(blank + 1, line.size()));
    const std::optional<std::int32_t> rank = token_id(written);
    if (!rank) {
      builder.fail_here("'{}' is no rank; a token in base64, a blank and a rank are wanted",
                        escape_for_print(written, 60));
    }
    builder.add_bytes(*bytes, *rank);
    behind = std::max(behind, std::int64_t{*rank} + 1);
  });
  builder.at("the ranks");
  if (specials.empty()) {
    builder.add_special(std::string(end_of_text_name), behind);
    builder.parts.notes.push_back(
        formatted("{} has the id {}, behind the last rank: the file does not say it, and the published id may be "
                  "another one; --special-id names it",
                  end_of_text_name, behind));
  } else {
    add_unused(builder, specials, behind);
  }
  builder.finish_tokens();
  builder.add_all_pairs();
  builder.parts.steps = {std::string(pattern.empty() ? "cl100k" : split_pattern_name(pattern))};
  // tiktoken looks up the whole piece first.
  builder.parts.ignore_merges = true;
  return std::move(builder.parts);
}

TokenizerParts read_tokenizer(const std::string& path, std::string_view pattern,
                              const std::vector<SpecialToken>& specials) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path given(path);
  if (fs::is_directory(given, ignored)) {
    for (const char* name : {"tokenizer.json", "vocab.json"}) {
      if (fs::exists(given / name, ignored)) return read_tokenizer((given / name).string(), pattern, specials);
    }
    fail("tokenizer", "{}: the folder holds neither tokenizer.json nor vocab.json", escape_for_print(path, 1000));
  }
  const auto check_says_all = [&] {
    check(pattern.empty(), "tokenizer", "{}: says itself how text is cut; only a .tiktoken file needs a pattern",
          escape_for_print(path, 1000));
    check(specials.empty(), "tokenizer",
          "{}: says itself what its special tokens are; only a .tiktoken file needs them",
          escape_for_print(path, 1000));
  };
  const std::string name = given.filename().string();
  if (name.ends_with("vocab.json") || name.ends_with("merges.txt")) {
    check_says_all();
    const std::string prefix = path.substr(0, path.size() - 10);  // both names have ten letters
    return parse_vocabulary(read_whole_file(prefix + "vocab.json", max_bytes), prefix + "vocab.json",
                            read_whole_file(prefix + "merges.txt", max_bytes), prefix + "merges.txt");
  }
  if (name.ends_with(".tiktoken")) return parse_tiktoken(read_whole_file(path, max_bytes), path, pattern, specials);
  check(name.ends_with(".json"), "tokenizer",
        "{}: tokenizer.json, vocab.json with merges.txt, a .tiktoken file or a folder with one of these is wanted",
        escape_for_print(path, 1000));
  check_says_all();
  return parse_tokenizer_json(read_whole_file(path, max_bytes), path);
}

}  // namespace tally
