// vocab.json with merges.txt, and .tiktoken; and which kind of file a path is.
#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/io/base64.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tasks/text/vocabulary.hpp"

namespace tally {
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
  const JsonLimits limits{.max_depth = 2, .max_token_bytes = 1 << 20, .integers_only = true};
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
  builder.parts.steps = {{std::string(pattern.empty() ? "cl100k" : split_pattern_name(pattern))}};
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
