#include "tasks/commands/parts/sequences.hpp"

#include <algorithm>

#include "core/io/npy.hpp"
#include "tasks/data/batch.hpp"

namespace tally {
namespace {

// A sequence of the user: position t predicts token t+1, the last predicts nothing.
Example example_of(std::vector<std::int32_t> tokens) {
  Example example = next_token_example(std::move(tokens));
  std::fill(example.loss_mask.begin(), example.loss_mask.end() - 1, std::uint8_t{1});
  return example;
}

// The sequences [N, T] (or [T]) of a file.
std::vector<Example> examples_in_file(const std::string& path, std::int64_t vocabulary) {
  const Tensor file = read_npy(path);
  check(is_integer(file.dtype()), "tokens", "{} must hold i32 or i64 token ids, not {}", path, file.dtype());
  check(file.rank() == 1 || file.rank() == 2, "tokens", "{} must be [sequences, tokens], got {}", path, file.shape());
  const Shape shape = file.rank() == 2 ? file.shape() : Shape{1, file.size(0)};
  check(shape[0] >= 1 && shape[1] >= 2, "tokens", "{} must hold at least one sequence of two tokens, got {}", path,
        file.shape());
  const std::vector<std::int64_t> ids = file.to(DType::i64).to_vector<std::int64_t>();
  std::vector<Example> examples;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t t = 0; t < shape[1]; ++t) {
      const std::int64_t id = ids[static_cast<std::size_t>(n * shape[1] + t)];
      check(0 <= id && id < vocabulary, "tokens", "{}: token {} of sequence {} is {}, the vocabulary has ids 0 to {}",
            path, t, n, id, vocabulary - 1);
      tokens.push_back(static_cast<std::int32_t>(id));
    }
    examples.push_back(example_of(std::move(tokens)));
    examples.back().score_mask = examples.back().loss_mask;
  }
  return examples;
}

}  // namespace

void SequenceChoice::declare(CommandLine& line) {
  line.add("--split", &split, "where sequences come from; the first evaluation split");
  line.add("--count", &count,
           "sequences; 0: 100 for the summary, 4 for a file, or all if there are fewer, and at most 5 MB for a page",
           {.least = 1, .most = endless_count});
  line.add("--start", &start, "number of the first one", {.least = 0, .most = endless_count - 1});
  line.add("--tokens", &tokens, ".npy file of token ids [sequences, tokens] instead of a split",
           {.excludes = {"--split", "--count", "--start"}});
  line.add("--text", &text,
           "a sequence as 'tally describe TASK --sequences 1' prints it, instead of a split; without --out, the "
           "answer to it",
           {.excludes = {"--split", "--count", "--start", "--tokens"}});
}

std::span<const Split> evaluation_splits(const Task& task) {
  check(task.splits().size() > 1, "split",
        "there are no sequences to evaluate on: where a run has a tokenizer without a text, --data names one");
  return std::span(task.splits()).subspan(1);
}

std::string SequenceChoice::split_of(const Task& task) const {
  return !tokens.empty() || !text.empty() ? "" : split.empty() ? evaluation_splits(task).front().name : split;
}

std::vector<Example> SequenceChoice::read(
    const Task& task, std::int64_t most,
    const std::function<void(std::int64_t sequences, std::int64_t length)>& check_fits) const {
  const std::string name = split_of(task);
  if (name.empty()) {
    std::vector<Example> examples;
    if (!tokens.empty()) {
      examples = examples_in_file(tokens, static_cast<std::int64_t>(task.vocabulary().size()));
    } else {
      std::vector<std::int32_t> ids = as_usage([&] { return task.encode(text); });
      if (ids.size() < 2) throw UsageError("[inspect] the text must have at least two symbols");
      examples.push_back(example_of(std::move(ids)));
    }
    check_fits(std::ssize(examples), std::ssize(examples.front().tokens));
    return examples;
  }
  std::int64_t number = count;
  if (number == 0) {
    const std::int64_t all = as_usage([&]() -> const Split& { return task.split(name); }).count;
    number = all == 0 ? most : std::clamp<std::int64_t>(all - start, 1, most);
  }
  const Split from = as_usage([&] { return task.split_holding(name, start, number); });
  check_fits(number, from.length);
  return examples_of(task, from.name, start, start + number);
}

}  // namespace tally
