// tally prepare: tokenizes files and folders into a folder that the task text trains on.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/cpu/parallel.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/text/prepare/prepare.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace {

struct Choices {
  std::string out, recipe;
  std::vector<std::string> sources, train, validation, test;
  PrepareSettings settings;
};

double part_of(const std::string& text) {
  return as_usage([&] { return parse_json(text, {}, "part of the texts").real(); });
}

// Fills in the settings of a corpus of tasks/text/fetch.sh.
void fill_in(const std::string& recipe, PrepareSettings& settings) {
  settings.recipe = recipe;
  CorpusRules& rules = settings.rules;
  rules.validation = rules.test = 0.05;
  if (recipe == "code") {
    rules.include = R"(\.go$)";
    rules.exclude = R"((^|/)(testdata|vendor)/|^cmd/|^syscall/|(^|/)z[^/]*\.go$)";
    rules.min_bytes = 512;
    rules.max_bytes = 65'536;
    rules.skip_if = R"(^// Code generated .* DO NOT EDIT\.$)";
    settings.licence = "BSD-3-clause (Go), parts under others: see the copyright file of golang-1.19-src";
  } else if (recipe == "prose") {
    rules.include = R"(\.md$)";
    rules.exclude = R"(^(alinks|arlinks|links|biblio|new|pdf|translations|contact|index)\.md$)";
    rules.min_bytes = 2'048;
    rules.max_bytes = 1'048'576;
    settings.licence = "GPL-2";
  }
}

std::string table(const JsonValue& manifest) {
  const JsonValue& counts = manifest.at("counts");
  std::string text = formatted("{} of {} texts kept; dropped by", counts.integer("kept"), counts.integer("found"));
  for (const JsonMember& rule : counts.members("dropped")) text += formatted(" {} {}", rule.name, rule.value.integer());
  text += "\n";
  TableRows rows{{"split", "texts", "bytes", "tokens", "words", "checksum of the text", "of the tokens"}};
  for (const JsonMember& split : manifest.members("splits")) {
    std::vector<std::string>& row = rows.emplace_back(1, split.name);
    for (const char* name : {"documents", "bytes", "tokens", "words"}) {
      row.push_back(with_commas(split.value.integer(name)));
    }
    for (const char* name : {"text_checksum", "token_checksum"}) row.push_back(split.value.string(name));
  }
  text += markdown_table(rows);
  const JsonValue& tokenizer = manifest.at("tokenizer");
  return text + formatted("tokenizer: vocabulary {}, pattern {}, checksum {}\n", tokenizer.integer("vocabulary"),
                          printable(tokenizer.string("pattern")), tokenizer.string("checksum"));
}

// Refuses `prepare SOURCE OUT`, the order of cp: it would move the corpus aside as an old output.
void refuse_swapped_folders(const Choices& choices) {
  const std::string& out = choices.out;
  std::error_code ignored;
  if (!path_exists(out) || path_exists(out + "/manifest.json") || std::filesystem::is_empty(out, ignored)) return;
  const auto missing = std::ranges::find_if_not(choices.sources, path_exists);
  throw UsageError(formatted("'{}' exists and holds no prepared text; the output comes first: {}", out,
                             missing == choices.sources.end() ? "tally prepare OUT SOURCE ..."
                                                              : formatted("tally prepare {} {}", *missing, out)));
}

Result run_prepare(Choices& choices, const CommonOptions& common) {
  refuse_swapped_folders(choices);
  PrepareSettings& settings = choices.settings;
  for (const std::string& path : choices.sources) settings.sources.push_back({path, ""});
  for (const auto& [paths, split] :
       {std::pair{&choices.train, "train"}, {&choices.validation, "validation"}, {&choices.test, "test"}}) {
    for (const std::string& path : *paths) settings.sources.push_back({path, split});
  }
  if (settings.sources.empty())
    throw UsageError("files or folders of text are wanted, or --train, --validation, --test");
  const bool redraw = !common.quiet && ::isatty(STDERR_FILENO) == 1;
  auto last = std::chrono::steady_clock::now();
  std::string stage_told;
  PrepareObserver observer;
  observer.stop = &watch_signals();
  observer.note = [&](std::string_view line) { say(common, line); };
  observer.progress = [&](std::string_view stage, std::uint64_t done, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (redraw && now - last > std::chrono::milliseconds(100)) {
      last = now;
      const std::string of = total > 0 ? formatted(" of {}", total) : "";
      std::fprintf(stderr, "\r\x1b[K%s: %llu%s", std::string(stage).c_str(), static_cast<unsigned long long>(done),
                   of.c_str());
    } else if (!redraw && stage != stage_told) {
      say(common, stage_told = stage);
    }
  };
  const JsonValue manifest = prepare_text(choices.out, settings, observer);
  if (redraw) std::fputs("\r\x1b[K", stderr);
  if (manifest.is_null()) {
    say(common, formatted("stopped; the same command begins again, and replaces {}.partial", printable(choices.out)));
    return {signal_exit_code()};
  }
  for (const auto& [name, split] : manifest.at("splits").members()) {
    if (split.integer("documents") > 0) continue;
    say(common, formatted("no text is in the split '{}': {}; --{}{} gives it some", name,
                          name == "train" ? "nothing can be trained on it" : "nothing is evaluated there", name,
                          name == "train" ? "" : formatted(" or --{}-part", name)));
  }
  return {.value = manifest, .text = table(manifest)};
}

}  // namespace

std::function<Result()> declare_prepare(CommandLine& line) {
  const auto choices = std::make_shared<Choices>();
  PrepareSettings& settings = choices->settings;
  CorpusRules& rules = settings.rules;
  choices->recipe = line.look_ahead("--recipe");
  fill_in(choices->recipe, settings);
  line.add("OUT", &choices->out, "folder to create; it comes before the sources", {.required = true});
  line.add("SOURCE", &choices->sources, "files and folders of text; in .jsonl and .ndjson files each line is a text");
  line.add("--field", &rules.field, "member of a JSON line that holds the text");
  line.add("--train", &choices->train, "source of the training split", {.group = "Split"});
  line.add("--validation", &choices->validation, "source of the validation split", {.group = "Split"});
  line.add("--test", &choices->test, "source of the test split", {.group = "Split"});
  line.add("--validation-part", [&rules](const std::string& text) { rules.validation = part_of(text); },
           "fraction of the texts for validation", {.group = "Split", .usual = "0.05"});
  line.add("--test-part", [&rules](const std::string& text) { rules.test = part_of(text); },
           "fraction of the texts for the test split", {.group = "Split", .usual = "0.05"});
  line.add("--tokenizer", &settings.tokenizer, "tokenizer to use: a file, or bytes; default: train one",
           {.group = "Tokenizer"});
  line.add("--vocabulary", &settings.vocabulary, "vocabulary of a trained tokenizer; 257: bytes and <|endoftext|>",
           {.group = "Tokenizer", .least = 257, .most = 1 << 24});
  line.add("--pattern", &settings.pattern,
           "pattern that splits text into pieces: gpt2, llama3, cl100k, or a PCRE2 "
           "pattern",
           {.group = "Tokenizer"});
  line.add("--special-id",
           [&settings](const std::string& text) {
             settings.specials.push_back(as_usage([&] { return parse_special(text); }));
           },
           special_id_help, {.group = "Tokenizer"});
  line.add(
      "--end-token", &settings.end_token,
      "special token that ends a document, or its id; without it the first that the tokenizer has of <|endoftext|>, "
      "<|end_of_text|>, </s> and their like, or else the eos_token of its tokenizer_config.json",
      {.group = "Tokenizer"});
  line.add("--min-count", &settings.min_count, "pairs that occur less often are not merged",
           {.group = "Tokenizer", .least = 1});
  line.add("--recipe", &choices->recipe, "use the rules for the corpora of tasks/text/fetch.sh",
           {.group = "Rules", .allowed = {"code", "prose"}});
  line.add("--include", &rules.include, "PCRE2 pattern of paths to read in a folder", {.group = "Rules"});
  line.add("--exclude", &rules.exclude, "PCRE2 pattern of paths to skip", {.group = "Rules"});
  line.add("--min-bytes", &rules.min_bytes, "skip smaller texts", {.group = "Rules", .least = 0});
  line.add("--max-bytes", &rules.max_bytes, "skip larger texts; 0: no limit", {.group = "Rules", .least = 0});
  line.add("--skip-if", &rules.skip_if, "PCRE2 pattern: skip texts with a matching line", {.group = "Rules"});
  line.add("--strict", &rules.strict,
           "a file that cannot be read or changes meanwhile, binary data, text that is not UTF-8, or a line of JSON "
           "without a text is an error",
           {.group = "Rules"});
  line.add("--licence", &settings.licence, "licence to record in the manifest", {.group = "Rules"});
  line.add("--force", &settings.force, "move an existing folder aside");
  return [choices, &common = line.common] { return run_prepare(*choices, common); };
}

}  // namespace tally
