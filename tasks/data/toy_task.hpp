// The common base of synthetic tasks: splits that differ in the parameters of one distribution, layouts of a sequence,
// and its text form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tasks/data/task.hpp"

namespace tally {

// The text form of sequences. In symbols ("0110=0") and words ("print a 0"), the answer follows if the last position
// asks for one. In tagged words ("k1 v3 k2 v5 k1:v3"), each answer follows the symbol at which it is asked.
enum class Writing { symbols, words, tagged };

std::string written(const Example& example, const std::vector<std::string>& vocabulary, Writing writing);
// The reverse; answers in tags are skipped.
std::vector<std::int32_t> read_written(std::string_view text, const std::vector<std::string>& vocabulary,
                                       Writing writing);

// The properties of a task.
struct ToyForm {
  std::string name;
  std::vector<std::string> vocabulary;
  Writing writing = Writing::symbols;
  std::string breakdown = {};  // Task::breakdown()
  bool scores_sequences = false;
};

// A task whose splits differ in the parameters of its distribution, a plain struct.
template <class Law>
class ToyTask : public Task {
 public:
  const std::vector<std::string>& vocabulary() const final { return form_.vocabulary; }
  const std::vector<Split>& splits() const final { return splits_; }
  bool scores_sequences() const final { return form_.scores_sequences; }
  std::string_view breakdown() const final { return form_.breakdown; }
  std::string text(const Example& example) const final { return written(example, form_.vocabulary, form_.writing); }
  std::vector<std::int32_t> encode(std::string_view text) const final {
    return read_written(text, form_.vocabulary, form_.writing);
  }
  Example example(std::string_view split_name, std::int64_t index) const final {
    const Split& split = split_holding(split_name, index);
    const Source& source = sources_[static_cast<std::size_t>(&split - splits_.data())];
    Rng rng = sequence_rng(source.seed, form_.name, split.name, index);
    return draw(rng, source.law);
  }

 protected:
  explicit ToyTask(ToyForm form) : form_(std::move(form)) {}
  const std::string& name() const { return form_.name; }
  void add_split(Split split, const Law& law, std::uint64_t seed) {
    splits_.push_back(std::move(split));
    sources_.push_back({law, seed});
  }
  virtual Example draw(Rng& rng, const Law& law) const = 0;

 private:
  struct Source {
    Law law;
    std::uint64_t seed;
  };

  ToyForm form_;
  std::vector<Split> splits_;
  std::vector<Source> sources_;  // one for each split
};

// Layouts.

// All tokens are fed, and no answer is asked yet.
Example tag_example(std::vector<std::int32_t> tokens);
// Position t must answer `target`. ask() counts it in loss and score, train_on() only in the loss.
void ask(Example& example, std::size_t t, std::int32_t target);
void train_on(Example& example, std::size_t t, std::int32_t target);
// A prompt, which ends in its separator, and outputs. Each output is predicted from all tokens before it, and scored.
Example prompt_and_outputs(std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& outputs);
// A prompt with one answer. The separator is appended, and the answer is asked at it.
Example one_answer(std::vector<std::int32_t> prompt, std::int32_t separator, std::int32_t answer);
// Sets the same key for all positions.
void set_key(Example& example, std::int64_t key);

// Draws and names.

// Uniform in low .. high, both included.
std::int64_t uniform_in(Rng& rng, std::int64_t low, std::int64_t high);
// `count` different numbers of 0 .. n-1, uniform, in random order. Needs count <= n.
std::vector<std::int32_t> distinct(Rng& rng, std::int64_t count, std::int64_t n);
// prefix0, prefix1, ...
std::vector<std::string> numbered(std::string_view prefix, std::int64_t count);
void append(std::vector<std::string>& names, const std::vector<std::string>& more);

// Length splits: prompts of n symbols, n uniform in 1..N in training and in-distribution, N+1..5N/2 in ood-long, and
// beyond, up to 25N/2, in ood-far (Delétang et al. 2023, arXiv 2207.02098: 40, 100, 500).
struct LengthOptions {
  std::int64_t max_length = 40;
  std::int64_t eval_count = 1000;
  std::int64_t far_count = 1000;

  void visit(OptionVisitor& visitor);
};

struct LengthRange {
  std::int64_t least = 1, most = 1;
};

// A task with length splits. Errors are broken down by the number of symbols before the separator, at which the first
// answer is asked.
class LengthTask : public ToyTask<LengthRange> {
 protected:
  // A sequence of length n has `times` n symbols and a separator.
  LengthTask(ToyForm form, const LengthOptions& options, std::uint64_t seed, std::uint64_t data_seed,
             std::int64_t times = 1);
  // A sequence of length n.
  virtual Example draw_length(Rng& rng, std::int64_t n) const = 0;

 private:
  Example draw(Rng& rng, const LengthRange& range) const final;
};

// A language in which every prefix of a prompt has one answer.
struct RunningAnswerOptions final : OptionsOf<RunningAnswerOptions> {
  LengthOptions lengths;
  bool every = false;

  void visit(OptionVisitor& visitor) override;
};

class RunningAnswerTask : public LengthTask {
 protected:
  // The separator is the last symbol.
  RunningAnswerTask(std::string name, std::vector<std::string> vocabulary, const RunningAnswerOptions& options,
                    std::uint64_t seed, std::uint64_t data_seed);
  // `answers` after each symbol of the prompt. The last is asked; with the option `every`, all are trained on.
  Example answered(std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& answers) const;

 private:
  bool every_;
};

// Associative recall as in Zoology (Arora et al. 2023, arXiv 2312.04927), also with keys that are assigned again. This
// is the distribution of the tasks mqar and mqar-update.
//
// There are V ids: 0 is the filler, 1..V/2-1 are keys and V/2..V-1 are values. K different keys and K different values,
// uniform, form the context k1 v1 .. kK vK. With U updates, U different keys of the K follow, uniform and in random
// order, each with a new value uniform over all values except the key's first. The other T - 2(K+U) positions are S
// slots of two. Key i = 1..K, in the order of the context, takes a slot g of 0..S-1 with weight (g+1)^(a-1), a = 0.01.
// Slots are drawn one after the other from the slots that are left. The first position of the slot holds the key and
// asks for its latest value. All other positions hold 0 or, drawn independently, any of the V ids. Answers are never
// fed; loss and score are on the queries.

struct RecallLaw {
  std::int64_t pairs = 0, updates = 0, length = 0;
};

struct RecallOptions {
  std::int64_t vocabulary = 8192;
  std::int64_t pairs = 16;
  std::int64_t length = 256;
  std::string filler = "zero";
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor);
};

class Recall : public ToyTask<RecallLaw> {
 public:
  Recall(std::string name, const RecallOptions& options);

 protected:
  // Throws Error if there are too few keys, values or slots.
  void add(std::string split, std::int64_t count, const RecallLaw& law, std::uint64_t seed);
  // Whether a further split can have this distribution: it needs enough keys, and a slot for each. For training, add()
  // checks.
  bool fits(const RecallLaw& law) const {
    return law.pairs < first_value_ && 4 * law.pairs + 2 * law.updates <= law.length;
  }

 private:
  Example draw(Rng& rng, const RecallLaw& law) const override;

  std::int64_t first_value_;  // V/2
  bool random_filler_;
};

}  // namespace tally
