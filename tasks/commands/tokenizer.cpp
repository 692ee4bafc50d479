// tally tokenizer: trains a tokenizer on texts, or shows how one tokenizes a text.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>

#include "core/io/atomic_file.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/terminal.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/prepare/bpe_training.hpp"
#include "tasks/text/prepare/token_file.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace {

struct TokenizerSettings {
  std::string what, tokenizer, pattern, text, out, token_type = "auto";
  std::vector<std::string> files, specials;
  std::vector<SpecialToken> special_ids;
  std::int64_t vocabulary = 4096, min_count = 2;
};

constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 36;

std::string read_source(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  return read_whole_file(path, max_text_bytes);
}

// The bytes of --text, or the concatenated files.
std::string text_of(const TokenizerSettings& settings) {
  if (!settings.text.empty()) return settings.text;
  if (settings.files.empty()) throw UsageError("a file, - for the standard input, or --text is wanted");
  std::string text;
  for (const std::string& file : settings.files) text += read_source(file);
  return text;
}

Tokenizer open_tokenizer(const TokenizerSettings& settings, const CommonOptions& common) {
  if (settings.tokenizer == "bytes") return Tokenizer(byte_tokenizer());
  TokenizerParts parts = read_tokenizer(settings.tokenizer, settings.pattern, settings.special_ids);
  for (const std::string& note : parts.notes) say(common, formatted("{}: {}", settings.tokenizer, note));
  return Tokenizer(std::move(parts));
}

// Writes tokenizer_config.json next to tokenizer.json: other libraries load a folder with both.
void write_config(const TokenizerParts& parts, const std::string& path, const CommonOptions& common) {
  const std::filesystem::path config = std::filesystem::path(path).parent_path() / "tokenizer_config.json";
  if (std::filesystem::path(path).filename() != "tokenizer.json") return;
  const std::string text = tokenizer_config_json(parts, parts.end_of_text(), parts.end_of_text());
  if (!path_exists(config)) return write_file_atomically(config.string(), text);
  if (read_whole_file(config.string(), 1 << 24) != text) {
    say(common, formatted("{}: stays as it is; it may be that of another tokenizer", printable(config.string())));
  }
}

Result train(const TokenizerSettings& settings, const CommonOptions& common) {
  if (settings.files.empty()) throw UsageError("files of text to train on are wanted behind the tokenizer's name");
  known_ending(settings.tokenizer, {".json"});
  check_output(settings.tokenizer);
  BpeTraining training{.vocabulary = settings.vocabulary, .min_count = settings.min_count};
  if (!settings.pattern.empty()) training.pattern = settings.pattern;
  const auto begin = std::chrono::steady_clock::now();
  const SplitPattern pattern(training.pattern);
  Splitter splitter(pattern);
  PieceCounts counts;
  std::uint64_t bytes = 0;
  for (const std::string& file : settings.files) {
    const std::string text = read_source(file);
    bytes += text.size();
    count_pieces(splitter, text, counts);
  }
  say(common, formatted("{} bytes, {} different pieces", bytes, counts.size()));
  const TokenizerParts parts = train_bpe(counts, training);
  write_file_atomically(settings.tokenizer, tokenizer_json(parts));
  write_config(parts, settings.tokenizer, common);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return {.value = JsonValue::object({{"out", settings.tokenizer},
                                      {"bytes", bytes},
                                      {"pieces", counts.size()},
                                      {"vocabulary", parts.tokens.size()},
                                      {"merges", parts.merges.size()},
                                      {"seconds", seconds.count()}}),
          .notice = true};
}

Result encode(const TokenizerSettings& settings, const CommonOptions& common) {
  const Tokenizer tokenizer = open_tokenizer(settings, common);
  if (!settings.out.empty()) check_output(settings.out);
  const std::string text = text_of(settings);
  Encoder encoder(tokenizer);
  std::vector<std::int32_t> ids;
  const auto begin = std::chrono::steady_clock::now();
  encoder.encode(text, settings.specials, ids);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (settings.out.empty()) {
    std::string line;
    JsonValue array = JsonValue::array();
    for (const std::int32_t id : ids) {
      line += formatted("{}{}", line.empty() ? "" : " ", id);
      if (common.json) array.push(id);
    }
    return {.value = JsonValue::object({{"ids", std::move(array)}}), .text = line + "\n"};
  }
  write_file_atomically(settings.out, packed_tokens(ids, token_bytes(tokenizer.vocabulary())));
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"bytes", text.size()},
                                      {"tokens", ids.size()},
                                      {"seconds", seconds.count()},
                                      {"mb_per_s", static_cast<double>(text.size()) / seconds.count() / 1e6}}),
          .notice = true};
}

Result decode(const TokenizerSettings& settings, const CommonOptions& common) {
  const Tokenizer tokenizer = open_tokenizer(settings, common);
  std::vector<std::int32_t> ids;
  if (settings.files.size() == 1 && settings.files[0].ends_with(".bin")) {
    const TokenFile file(settings.files[0], tokenizer.vocabulary(), token_format(settings.token_type));
    ids.resize(static_cast<std::size_t>(file.size()));
    file.read(0, ids);
  } else {
    const std::string text = text_of(settings);
    constexpr const char* separators = " \t\r\n,";
    for (std::size_t end = 0, begin = 0; (begin = text.find_first_not_of(separators, end)) != text.npos;) {
      end = std::min(text.find_first_of(separators, begin), text.size());
      const std::string_view number = std::string_view(text).substr(begin, end - begin);
      const std::optional<std::int32_t> id = token_id(number, tokenizer.vocabulary());
      check(id.has_value(), "tokenizer", "{}: id {} is '{}', and {} has the tokens 0 to {}",
            settings.files.size() == 1 ? escape_for_print(settings.files[0], 1000) : std::string("the ids"), ids.size(),
            escape_for_print(number, 60), escape_for_print(settings.tokenizer, 1000), tokenizer.vocabulary() - 1);
      ids.push_back(*id);
    }
  }
  const std::string bytes = tokenizer.decode(ids);
  if (!settings.out.empty()) {
    check_output(settings.out);
    write_file_atomically(settings.out, bytes);
    return {.value = JsonValue::object({{"out", settings.out}, {"bytes", bytes.size()}}), .notice = true};
  }
  // Control characters are escaped on a terminal; a file gets the raw bytes.
  return {.value = JsonValue::object({{"text", escape_for_print(bytes, bytes.size())}}),
          .text = escape_for_print(bytes, bytes.size()) + "\n"};
}

// Shows the tokens of a text as pieces of text, and the compression.
Result show(const TokenizerSettings& settings, const CommonOptions& common) {
  const Tokenizer tokenizer = open_tokenizer(settings, common);
  std::vector<std::int32_t> by_length(static_cast<std::size_t>(tokenizer.vocabulary()));
  std::iota(by_length.begin(), by_length.end(), 0);
  std::ranges::stable_sort(by_length, std::greater(), [&](std::int32_t id) { return tokenizer.bytes_of(id).size(); });
  const auto shown = [&](std::int32_t id) {
    const std::string_view bytes = tokenizer.bytes_of(id);
    return bytes.empty() ? "<special>" : escape_for_print(bytes, 60);
  };
  JsonValue longest = JsonValue::array();
  std::string text = formatted("vocabulary {}, {} merges, pattern {}\nlongest tokens:", tokenizer.vocabulary(),
                               tokenizer.parts().merges.size(), escape_for_print(tokenizer.parts().pattern()));
  for (std::size_t index = 0; index < std::min<std::size_t>(10, by_length.size()); ++index) {
    text += formatted(" '{}'", shown(by_length[index]));
    longest.push(shown(by_length[index]));
  }
  JsonValue value = JsonValue::object({{"vocabulary", tokenizer.vocabulary()},
                                       {"merges", tokenizer.parts().merges.size()},
                                       {"pattern", escape_for_print(tokenizer.parts().pattern())},
                                       {"longest", std::move(longest)}});
  text += "\n";
  if (!settings.text.empty() || !settings.files.empty()) {
    const std::string source = text_of(settings);
    std::vector<std::int32_t> ids;
    Encoder(tokenizer).encode(source, settings.specials, ids);
    const bool coloured = shows_colours(stdout);
    for (std::size_t index = 0; index < ids.size(); ++index) {
      const std::string token = shown(ids[index]);
      text += coloured ? formatted("\x1b[4{}m{}\x1b[0m", index % 6 + 1, token)
                       : formatted("{}{}", index == 0 ? "" : "|", token);
    }
    const double ratio = ids.empty() ? 0 : static_cast<double>(source.size()) / static_cast<double>(ids.size());
    char figure[32];
    std::snprintf(figure, sizeof figure, "%.2f", ratio);
    text += formatted("\n{} bytes, {} tokens, {} bytes per token\n", source.size(), ids.size(), figure);
    value.set("bytes", source.size()).set("tokens", ids.size()).set("bytes_per_token", ratio);
  }
  return {.value = std::move(value), .text = text};
}

}  // namespace

std::function<Result()> declare_tokenizer(CommandLine& line) {
  const auto settings = std::make_shared<TokenizerSettings>();
  line.add("WHAT", &settings->what,
           "train: make a tokenizer from texts; encode: text to ids; decode: ids to text; show: the tokens of a text, "
           "and the longest tokens",
           {.allowed = {"train", "encode", "decode", "show"}, .required = true});
  line.add(
      "TOKENIZER", &settings->tokenizer,
      "tokenizer.json, vocab.json, merges.txt, a .tiktoken file, a folder with one of these, or bytes; for train: the "
      "file to write",
      {.required = true});
  line.add("FILE", &settings->files, "texts; for decode: ids or a .bin file of tokens; -: standard input");
  line.add("--text", &settings->text, "the text (or the ids) as an argument", {.excludes = {"FILE"}});
  line.add("--out", &settings->out, "for encode: token file to write (headerless); for decode: file of bytes to write",
           {.needs = {"WHAT=encode|decode"}});
  line.add("--token-type", &settings->token_type, formatted("of decode: {}", token_format_help),
           {.allowed = {std::begin(token_format_names), std::end(token_format_names)}, .needs = {"WHAT=decode"}});
  line.add("--specials", &settings->specials, "for encode and show: treat the name of this special token as the token",
           {.needs = {"WHAT=encode|show"}});
  line.add("--special-id",
           [settings](const std::string& text) {
             settings->special_ids.push_back(as_usage([&] { return parse_special(text); }));
           },
           special_id_help, {.needs = {"TOKENIZER=*.tiktoken"}});
  line.add("--vocabulary", &settings->vocabulary,
           "for train: number of tokens, which are bytes, merges and "
           "<|endoftext|>",
           {.least = 257, .most = 1 << 24, .needs = {"WHAT=train"}});
  line.add("--min-count", &settings->min_count, "for train: rarer pairs are not merged",
           {.least = 1, .needs = {"WHAT=train"}});
  line.add("--pattern", &settings->pattern, "for train and .tiktoken: gpt2, llama3, cl100k, or a PCRE2 pattern");
  return [settings, &common = line.common] {
    if (settings->what == "train") return train(*settings, common);
    if (settings->what == "encode") return encode(*settings, common);
    return settings->what == "decode" ? decode(*settings, common) : show(*settings, common);
  };
}

}  // namespace tally
