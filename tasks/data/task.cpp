// Shared by all tasks: finding splits and entries by name, the random numbers of a sequence, symbols to ids and back.
#include "tasks/data/task.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.hpp"
#include "tasks/print/printable.hpp"

namespace tally {
namespace {

template <class Items, class NameOf>
[[noreturn]] void fail_unknown(std::string_view kind, std::string_view name, const Items& items, NameOf name_of) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(name_of(item));
  const std::string hint = did_you_mean(name, names);
  fail(kind, "unknown {} '{}'{}{}{}", kind, name, hint, hint.empty() ? "; known are " : " Known are ", joined(names));
}

}  // namespace

std::int64_t Task::max_length() const {
  std::int64_t longest = 0;
  for (const Split& split : splits()) longest = std::max(longest, split.length);
  return longest;
}

std::string Task::vocabulary_record() const { return joined(vocabulary(), " "); }

std::vector<std::string> Task::roles(const Example& example) const {
  std::vector<std::string> roles;
  for (const std::int32_t token : example.tokens) roles.push_back(vocabulary().at(static_cast<std::size_t>(token)));
  return roles;
}

std::vector<std::int32_t> Task::sources(const Example& example) const {
  return std::vector<std::int32_t>(example.tokens.size(), -1);
}

const Split& Task::split(std::string_view name) const {
  for (const Split& split : splits()) {
    if (split.name == name) return split;
  }
  fail_unknown("split", name, splits(), [](const Split& split) { return split.name; });
}

const Split& Task::split_holding(std::string_view name, std::int64_t first, std::int64_t count) const {
  const Split& found = split(name);
  const std::int64_t all = found.count > 0 ? found.count : endless_count;
  check(0 <= first && first < all, "split", "{} has sequences 0 to {}, asked for {}", name, all - 1, first);
  check(count <= all - first, "split", "{} has {} sequences, asked for {} from number {} on", name, all, count, first);
  return found;
}

Rng sequence_rng(std::uint64_t seed, std::string_view task, std::string_view split, std::int64_t index) {
  return Rng(RandomStream{seed, stream_of(formatted("{}/{}", task, split)), static_cast<std::uint32_t>(index)});
}

Example next_token_example(std::vector<std::int32_t> tokens) {
  Example example;
  example.tokens = std::move(tokens);
  if (!example.tokens.empty()) {
    example.targets.assign(example.tokens.begin() + 1, example.tokens.end());
    example.targets.push_back(0);
  }
  example.loss_mask.assign(example.tokens.size(), 0);
  example.score_mask.assign(example.tokens.size(), 0);
  return example;
}

std::string join_symbols(const std::vector<std::string>& vocabulary, std::span<const std::int32_t> tokens,
                         std::string_view separator) {
  std::string text;
  for (std::size_t index = 0; index < tokens.size(); ++index) {
    const std::int32_t token = tokens[index];
    check(0 <= token && static_cast<std::size_t>(token) < vocabulary.size(), "text",
          "token {} is {}, the vocabulary has ids 0 to {}", index + 1, token, vocabulary.size() - 1);
    if (index > 0) text += separator;
    text += vocabulary[static_cast<std::size_t>(token)];
  }
  return text;
}

std::int32_t find_symbol(const std::vector<std::string>& vocabulary, std::string_view symbol, std::size_t number) {
  const auto found = std::find(vocabulary.begin(), vocabulary.end(), symbol);
  if (found == vocabulary.end()) {
    std::string known;
    for (const std::string& word : vocabulary) known += formatted(" {}", word);
    fail("encode", "symbol {} is '{}', which is none of{}", number, printable(symbol), known);
  }
  return static_cast<std::int32_t>(found - vocabulary.begin());
}

std::vector<std::int32_t> encode_characters(const std::vector<std::string>& vocabulary, std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) tokens.push_back(find_symbol(vocabulary, text.substr(i, 1), i + 1));
  return tokens;
}

std::vector<std::int32_t> encode_words(const std::vector<std::string>& vocabulary, std::string_view text) {
  constexpr std::string_view white_space = " \t\r\n";
  std::vector<std::int32_t> tokens;
  std::size_t begin = text.find_first_not_of(white_space);
  while (begin != std::string_view::npos) {
    const std::size_t end = text.find_first_of(white_space, begin);
    tokens.push_back(find_symbol(vocabulary, text.substr(begin, end - begin), tokens.size() + 1));
    begin = text.find_first_not_of(white_space, end);
  }
  return tokens;
}

const TaskEntry& find_task(std::string_view name) {
  for (const TaskEntry* entry : task_registry()) {
    if (entry->name == name) return *entry;
  }
  fail_unknown("task", name, task_registry(), [](const TaskEntry* entry) { return entry->name; });
}

namespace fs = std::filesystem;

std::vector<std::string> path_options(const TaskEntry& task, Options& options) {
  std::vector<std::string> names;
  if (!task.reads_files) return names;
  for (const OptionInfo& option : list_options(options)) {
    const bool free_text = std::holds_alternative<std::string>(option.value) && option.allowed.empty();
    if (free_text && option.name != "end-token") names.push_back(option.name);
  }
  return names;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string absolute_path(std::string_view path) {
  if (path.empty()) return {};
  const fs::path whole = fs::absolute(path);
  // "a/../b" differs from "b" if a is a symbolic link.
  return (std::ranges::count(whole, "..") > 0 ? whole : whole.lexically_normal()).string();
}

std::string path_from(const std::string& folder, const std::string& path) {
  const fs::path below = fs::path(path).lexically_relative(folder);
  return below.empty() || below == "." || *below.begin() == ".." ? path : below.string();
}

}  // namespace tally
