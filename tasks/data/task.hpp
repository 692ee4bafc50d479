// A task: a pure function from (seed, split, index) to a token sequence, with masks for training and scoring. One file
// per task in tasks/toy/; the build finds it by its name (selective_copy.cpp is the task "selective-copy").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/math/random.hpp"
#include "nn/options.hpp"

namespace tally {

// One sequence. All five vectors have its length (keys may be empty). Position t attends to tokens[0..t] and predicts
// targets[t].
struct Example {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;     // 0 if the position predicts nothing
  std::vector<std::uint8_t> loss_mask;   // 1 if the prediction counts in the loss
  std::vector<std::uint8_t> score_mask;  // 1 if it counts in the error
  std::vector<std::int32_t> keys;        // values of Task::breakdown() at scored positions; empty without a breakdown
  // Rising, above 0: positions at which another text begins. Earlier tokens are masked for this text.
  std::vector<std::int32_t> starts = {};
};

// The number of sequences of an endless split: the index is one 32-bit word of the random counter.
inline constexpr std::int64_t endless_count = std::int64_t{1} << 32;

struct Split {
  std::string name;         // "train", "in-distribution", "ood-sparse"
  std::string summary;      // "p_i = 0.98"
  std::int64_t count = 0;   // sequences; 0 for an endless stream
  std::int64_t length = 0;  // longest sequence in tokens
};

// The extent of an evaluation on text, without which a perplexity means nothing. Words are counted by
// tasks/text/normal_form.hpp.
struct TextCounts {
  std::int64_t context = 0, stride = 0;                          // tokens
  std::int64_t tokens = 0, words = 0, bytes = 0, documents = 0;  // that were scored
  std::string token_checksum, tokenizer_checksum;                // CRC-32C of the split's token file, of tokenizer.json
};

class Task {
 public:
  virtual ~Task() = default;
  // Token id -> symbol as printed.
  virtual const std::vector<std::string>& vocabulary() const = 0;
  // The training split comes first.
  virtual const std::vector<Split>& splits() const = 0;
  // Sequence number `index` of a split, with the same bits on every machine. Throws for an unknown split, naming the
  // known ones, and past the end of a finite one.
  virtual Example example(std::string_view split, std::int64_t index) const = 0;
  // The whole sequence, answers included, as one line of text: "w0i1r0", "DB_C..", "a = 0 ; print a 0".
  virtual std::string text(const Example& example) const = 0;
  // Tokens from such text, also of an unfinished sequence. Throws naming the first symbol that is not in the
  // vocabulary, and its number.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  // Sizes and checksums of the files that the task reads; empty if it reads none. A checkpoint records them, so that a
  // run is not resumed with other data.
  virtual std::string data_record() const { return {}; }

  // Whether reports show the sequence error rate rather than the token error rate.
  virtual bool scores_sequences() const { return false; }
  // The quantity by which errors are broken down: "length", "gap", "t"; empty for none. Example::keys has the values.
  virtual std::string_view breakdown() const { return {}; }

  // The token before the first token of a text, which also ends the previous text; empty if there is no such token.
  virtual std::vector<std::int32_t> beginning() const { return {}; }
  // The output text of a token: its symbol, or bytes.
  virtual std::string_view bytes_of(std::int32_t token) const {
    return vocabulary().at(static_cast<std::size_t>(token));
  }
  // Counts for the targets of the first `count` sequences of a split; only for text.
  virtual std::optional<TextCounts> text_counts(std::string_view split, std::int64_t count) const {
    return (void)split, (void)count, std::nullopt;
  }
  // The symbols as a checkpoint records them: all of them, or enough to distinguish them from others.
  virtual std::string vocabulary_record() const;

  // The kind of each token, for means over tokens of a kind (tasks/inspect/explain.hpp). By default its symbol; a task
  // may return a more specific kind ("bit of w").
  virtual std::vector<std::string> roles(const Example& example) const;
  // For each scored position, the index of the token that holds its answer; -1 at all other positions, and if no single
  // token holds the answer.
  virtual std::vector<std::int32_t> sources(const Example& example) const;

  // Training sequences in one epoch; 0 for an endless stream.
  virtual std::int64_t epoch() const { return splits().front().count; }

  // The length that learned tables must cover: the longest sequence of any split, unless a task overrides it.
  virtual std::int64_t max_length() const;
  // Throws Error naming the known splits if none has this name.
  const Split& split(std::string_view name) const;
  // The split of this name. Also throws if it does not have `count` sequences from number `first` on.
  const Split& split_holding(std::string_view name, std::int64_t first, std::int64_t count = 1) const;
};

// Building blocks of tasks.

// The random numbers of one sequence. `index` is at most 2^32-1, which Task::split_holding ensures.
Rng sequence_rng(std::uint64_t seed, std::string_view task, std::string_view split, std::int64_t index);
// All tokens are fed, position t predicts token t+1, the last predicts nothing. Both masks are 0.
Example next_token_example(std::vector<std::int32_t> tokens);
// The concatenated symbols of `tokens`.
std::string join_symbols(const std::vector<std::string>& vocabulary, std::span<const std::int32_t> tokens,
                         std::string_view separator);
// The id of a symbol; throws Error naming an unknown symbol and its number (counted from 1).
std::int32_t find_symbol(const std::vector<std::string>& vocabulary, std::string_view symbol, std::size_t number);
// Ids of a text in which every character is a symbol.
std::vector<std::int32_t> encode_characters(const std::vector<std::string>& vocabulary, std::string_view text);
// Ids of a text whose symbols are words separated by blanks.
std::vector<std::int32_t> encode_words(const std::vector<std::string>& vocabulary, std::string_view text);

struct Seeds {
  std::uint64_t training;  // of endless training streams
  std::uint64_t data;      // of evaluation sets and fixed training sets
};

struct TaskEntry {
  std::string name;
  std::string summary;      // one line
  std::string description;  // distribution, loss, score; several lines
  std::string paper;
  std::unique_ptr<Options> (*make_options)();
  // `seed` is used for training streams, `data_seed` for evaluation sets and fixed training sets.
  std::unique_ptr<Task> (*make)(const Options& options, std::uint64_t seed, std::uint64_t data_seed);
  // Its sequences come from files named by an option; without these files the task does not exist.
  bool reads_files = false;
};

// Whether the options of a task declare `static constexpr bool reads_files = true`.
template <class OptionsType>
constexpr bool reads_files_of() {
  if constexpr (requires { OptionsType::reads_files; }) return OptionsType::reads_files;
  return false;
}

// All tasks, by name. Generated by the build.
std::span<const TaskEntry* const> task_registry();
// Throws Error with the nearest known name.
const TaskEntry& find_task(std::string_view name);

// Closing line of a task's file, outside any namespace:
//   TALLY_TASK(flip_flop, FlipFlopOptions, FlipFlop, "summary", "description", "paper");
// TaskType needs a constructor (const OptionsType&, const Seeds&).
#define TALLY_TASK(stem, OptionsType, TaskType, summary_, description_, paper_)                            \
  namespace tally::registry {                                                                              \
  const TaskEntry& task_##stem() {                                                                         \
    static const TaskEntry entry{                                                                          \
        name_from_stem(#stem),                                                                             \
        summary_,                                                                                          \
        description_,                                                                                      \
        paper_,                                                                                            \
        []() -> std::unique_ptr<Options> { return std::make_unique<OptionsType>(); },                      \
        [](const Options& options, std::uint64_t seed, std::uint64_t data_seed) -> std::unique_ptr<Task> { \
          const Seeds seeds{seed, data_seed};                                                              \
          return std::make_unique<TaskType>(dynamic_cast<const OptionsType&>(options), seeds);             \
        },                                                                                                 \
        reads_files_of<OptionsType>()};                                                                    \
    return entry;                                                                                          \
  }                                                                                                        \
  }                                                                                                        \
  static_assert(true)

// The options of a task that are paths, and how a run stores them. Paths are absolute, so that they are valid in every
// working directory. Paths inside the run's folder are relative to it, because they move with it.

// The free-text options of a task that reads files, except the name of a token. Other tasks have none.
std::vector<std::string> path_options(const TaskEntry& task, Options& options);

// "runs/cope" of "runs/cope//".
std::string without_slashes(std::string path);
// The absolute path; an empty path stays empty.
std::string absolute_path(std::string_view path);
// The path relative to the folder if it is inside; otherwise unchanged. Both are absolute.
std::string path_from(const std::string& folder, const std::string& path);

// The tokenizer of a task on text, and its special tokens, which represent no bytes of a text.

class Tokenizer;

class SpecialTokens {
 public:
  virtual ~SpecialTokens() = default;
  // Ids of a text. Only the names in `allowed` become special tokens; everything else is text. Throws Error for a name
  // that is not a special token.
  virtual std::vector<std::int32_t> encode_allowing(std::string_view text,
                                                    std::span<const std::string> allowed) const = 0;
  // Null if only the ids of the tokens are known.
  virtual const Tokenizer* tokenizer() const = 0;
};

}  // namespace tally
