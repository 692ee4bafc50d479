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

// A task whose splits differ in the parameters of its distribution, a number or a plain struct.
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
    const Law& law = laws_[static_cast<std::size_t>(&split - splits_.data())];
    const bool is_endless = split.count == 0;
    Rng rng = sequence_rng(is_endless ? seeds_.training : seeds_.data, form_.name, split.name, index);
    return draw(rng, law);
  }

 protected:
  ToyTask(ToyForm form, const Seeds& seeds) : form_(std::move(form)), seeds_(seeds) {}
  const std::string& name() const { return form_.name; }
  void add_split(Split split, const Law& law) {
    splits_.push_back(std::move(split));
    laws_.push_back(law);
  }
  virtual Example draw(Rng& rng, const Law& law) const = 0;

 private:
  ToyForm form_;
  Seeds seeds_;
  std::vector<Split> splits_;
  std::vector<Law> laws_;  // of each split
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
// `count` letters from `first` on.
std::vector<std::string> letters(char first, std::int64_t count);
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
  LengthTask(ToyForm form, const LengthOptions& options, const Seeds& seeds, std::int64_t times = 1);
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
  // The separator is the last symbol, and the `drawn` symbols before it form the prompts, uniformly.
  RunningAnswerTask(std::string name, std::vector<std::string> vocabulary, std::int64_t drawn,
                    const RunningAnswerOptions& options, const Seeds& seeds);
  // The answer to a prompt, computed from the answer to the prompt without its last symbol (0 for an empty prompt).
  virtual std::int32_t next_answer(std::int32_t answer, const std::vector<std::int32_t>& prompt) const = 0;

 private:
  // The last answer is asked; with the option `every`, all are trained on.
  Example draw_length(Rng& rng, std::int64_t n) const final;

  std::int64_t drawn_;
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
  // Adds ood-dense (twice the pairs), or ood-all (all keys are updated) if there are updates, unless keys or slots are
  // too few. Throws Error if they are too few for training.
  Recall(std::string name, const RecallOptions& options, std::int64_t updates, const Seeds& seeds);

 private:
  void add(std::string split, std::int64_t count, const RecallLaw& law);
  Example draw(Rng& rng, const RecallLaw& law) const override;

  std::int64_t first_value_;  // V/2
  bool random_filler_;
};

}  // namespace tally
