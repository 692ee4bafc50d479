// Selective copy (CoPE, arXiv 2405.18719, section 5.2): repeat the symbols of a prompt and skip its blanks.
//
// The prompt holds N non-blanks, each uniform among 15 symbols, and M blanks whose positions are a uniform subset of
// the N + M. Then the N non-blanks follow in order. T = 2 N + M, with no separator. With N = 5, M = 4, blanks as _:
//
//   D__CF_F_E DCFFE
//
// All T symbols are fed, and position t predicts symbol t+1. Only the copied part has loss and score.
#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

constexpr std::uint32_t symbol_count = 15;  // ids 0-14; the blank is 15
constexpr std::int32_t blank = symbol_count;

struct SelectiveCopyOptions final : OptionsOf<SelectiveCopyOptions> {
  std::int64_t non_blanks = 256;
  std::int64_t blanks = 256;
  std::int64_t dense_blanks = 128;
  std::int64_t sparse_blanks = 512;
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    constexpr std::int64_t most = 1 << 20;
    visitor.integer("non-blanks", non_blanks, "symbols to copy", 1, most);
    visitor.integer("blanks", blanks, "blanks of train and in-distribution", 0, most);
    visitor.integer("dense-blanks", dense_blanks, "blanks of ood-dense", 0, most);
    visitor.integer("sparse-blanks", sparse_blanks, "blanks of ood-sparse", 0, most);
    visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
  }
};

// The splits differ in the number of blanks.
class SelectiveCopy final : public ToyTask<std::int64_t> {
 public:
  SelectiveCopy(const SelectiveCopyOptions& options, const Seeds& seeds)
      : ToyTask({.name = "selective-copy",
                 .vocabulary = symbols(),
                 // The paper's error of 100.0 (0.0) for rope cannot be a token error rate, since guesses are sometimes
                 // right.
                 .scores_sequences = true},
                seeds),
        non_blanks_(options.non_blanks) {
    const auto add = [&](const char* name, std::int64_t count, std::int64_t blanks) {
      add_split(
          {name, formatted("{} non-blanks among {} blanks", non_blanks_, blanks), count, 2 * non_blanks_ + blanks},
          {blanks});
    };
    add("train", 0, options.blanks);
    add("in-distribution", options.eval_count, options.blanks);
    add("ood-dense", options.eval_count, options.dense_blanks);
    add("ood-sparse", options.eval_count, options.sparse_blanks);
  }

  std::vector<std::string> roles(const Example& example) const override {
    std::vector<std::string> roles;
    for (std::size_t t = 0; t < example.tokens.size(); ++t) {
      const bool copied = t > 0 && example.score_mask[t - 1] != 0;
      roles.emplace_back(copied ? "copy" : example.tokens[t] == blank ? "blank" : "symbol");
    }
    return roles;
  }
  // The next symbol of the prompt.
  std::vector<std::int32_t> sources(const Example& example) const override {
    std::vector<std::int32_t> sources(example.tokens.size(), -1);
    std::size_t next = 0;
    for (std::size_t t = 0; t < sources.size(); ++t) {
      if (example.score_mask[t] == 0) continue;
      while (next <= t && example.tokens[next] == blank) ++next;
      if (next <= t) sources[t] = static_cast<std::int32_t>(next++);
    }
    return sources;
  }

 private:
  static std::vector<std::string> symbols() {
    std::vector<std::string> names = letters('A', symbol_count);
    names.emplace_back("_");
    return names;
  }

  Example draw(Rng& rng, const std::int64_t& blanks) const override {
    std::vector<std::int32_t> tokens, copy;
    // Selection sampling (Knuth, volume 2, algorithm 3.4.2 S): a position is blank with probability (blanks left) over
    // (positions left), which makes every subset equally likely.
    std::int64_t blanks_left = blanks;
    for (std::int64_t positions_left = non_blanks_ + blanks; positions_left > 0; --positions_left) {
      if (rng.below(static_cast<std::uint32_t>(positions_left)) < blanks_left) {
        tokens.push_back(blank);
        --blanks_left;
      } else {
        copy.push_back(static_cast<std::int32_t>(rng.below(symbol_count)));
        tokens.push_back(copy.back());
      }
    }
    return prompt_and_outputs(std::move(tokens), copy);
  }

  std::int64_t non_blanks_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    selective_copy, SelectiveCopyOptions, SelectiveCopy, "copy the symbols of a prompt without its blanks",
    "A prompt of non-blanks (uniform among 15 symbols, A-O) with blanks (_) at random positions among them, then\n"
    "the non-blanks in order. Loss and score are on the copied part alone.",
    "Golovneva et al. 2024 (CoPE), arXiv 2405.18719, section 5.2");
