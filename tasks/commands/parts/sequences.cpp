#include "tasks/commands/parts/sequences.hpp"

#include <algorithm>

#include "core/io/npy.hpp"
#include "tasks/data/batch.hpp"

namespace tally {
namespace {

// The user's own sequences [N, T] (or [T]): position t predicts token t+1, the last predicts nothing.
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
    Example example = next_token_example(std::move(tokens));
    std::fill(example.loss_mask.begin(), example.loss_mask.end() - 1, std::uint8_t{1});
    example.score_mask = example.loss_mask;
    examples.push_back(std::move(example));
  }
  return examples;
}

}  // namespace

void SequenceChoice::declare_split(CommandLine& line, const std::string& count_help) {
  line.add("--split", &split, "where sequences come from; the first evaluation split");
  line.add("--count", &count, count_help, {.least = 1, .most = endless_count});
  line.add("--start", &start, "number of the first one", {.least = 0, .most = endless_count - 1});
}

void SequenceChoice::declare(CommandLine& line, const std::string& count_help) {
  declare_split(line, count_help);
  line.add("--tokens", &tokens, ".npy file of token ids [sequences, tokens] instead of a split",
           {.excludes = {"--split", "--count", "--start"}});
}

std::span<const Split> evaluation_splits(const Task& task) {
  check(task.splits().size() > 1, "split",
        "there are no sequences to evaluate on: where a run has a tokenizer without a text, --data names one");
  return std::span(task.splits()).subspan(1);
}

std::string SequenceChoice::split_of(const Task& task) const {
  return !tokens.empty() ? "" : split.empty() ? evaluation_splits(task).front().name : split;
}

void SequenceChoice::count_at_most(std::int64_t most, const Task& task) {
  const std::string name = split_of(task);
  if (count > 0 || name.empty()) return;
  const std::int64_t all = as_usage([&]() -> const Split& { return task.split(name); }).count;
  count = all == 0 ? most : std::clamp<std::int64_t>(all - start, 1, most);
}

std::vector<Example> SequenceChoice::read(
    const Task& task, const std::function<void(std::int64_t sequences, std::int64_t length)>& check_fits) const {
  if (!tokens.empty()) {
    std::vector<Example> examples = examples_in_file(tokens, static_cast<std::int64_t>(task.vocabulary().size()));
    check_fits(static_cast<std::int64_t>(examples.size()), static_cast<std::int64_t>(examples.front().tokens.size()));
    return examples;
  }
  const Split from = as_usage([&] { return task.split_holding(split_of(task), start, count); });
  check_fits(count, from.length);
  return examples_of(task, from.name, start, start + count);
}

}  // namespace tally
