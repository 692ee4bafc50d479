// Flip-flop (Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling", arXiv 2306.00946): a
// memory of one bit that is written, read and, most of the time, ignored.
//
// A sequence of T symbols is T/2 pairs of an instruction and a bit. The first instruction is w (write), the last is r
// (read). The others are independent: i (ignore) with probability p_i, w and r with (1-p_i)/2 each. The bit after w and
// i is uniform, and the bit after r repeats the one after the latest w:
//   w 0 i 1 r 0 w 1 i 0 r 1          T = 12
//
// All T symbols are fed, and position t predicts symbol t+1. The bit after each r is scored: (T/2 - 2) (1-p_i)/2 + 1
// bits of a sequence on average.
#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct FlipFlopOptions final : OptionsOf<FlipFlopOptions> {
  std::int64_t length = 512;
  double p_ignore = 0.8;
  std::string loss = "reads";
  std::int64_t eval_count = 1000;
  std::int64_t sparse_count = 100'000;
  std::int64_t dense_count = 3000;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("length", length, "symbols in a sequence, even", 4, 1 << 20);
    visitor.real("p-ignore", p_ignore, "probability of i in train and in-distribution", 0, 1);
    visitor.choice("loss", loss, {"reads", "all"}, "train on the bit after r, or on every symbol");
    visitor.integer("eval-count", eval_count, "sequences of in-distribution", 1);
    visitor.integer("sparse-count", sparse_count, "sequences of ood-sparse", 1);
    visitor.integer("dense-count", dense_count, "sequences of ood-dense", 1);
  }
};

// The splits differ in the probability of i.
class FlipFlop final : public ToyTask<double> {
 public:
  FlipFlop(const FlipFlopOptions& options, const Seeds& seeds)
      : ToyTask({"flip-flop", {"w", "r", "i", "0", "1"}}, seeds),
        length_(options.length),
        loss_on_all_(options.loss == "all") {
    check(length_ >= 4 && length_ % 2 == 0, "flip-flop", "length must be even and at least 4, got {}", length_);
    const auto add = [&](const char* name, std::int64_t count, double p_ignore) {
      add_split({name, formatted("p_i = {}", p_ignore), count, length_}, p_ignore);
    };
    add("train", 0, options.p_ignore);
    add("in-distribution", options.eval_count, options.p_ignore);
    add("ood-sparse", options.sparse_count, 0.98);
    add("ood-dense", options.dense_count, 0.1);
  }

  // Bits by the preceding instruction.
  std::vector<std::string> roles(const Example& example) const override {
    std::vector<std::string> roles = Task::roles(example);
    for (std::size_t t = 1; t < roles.size(); t += 2) roles[t] = "bit of " + roles[t - 1];
    return roles;
  }
  // The bit of the latest write.
  std::vector<std::int32_t> sources(const Example& example) const override {
    std::vector<std::int32_t> sources(example.tokens.size(), -1);
    std::int32_t written = -1;
    for (std::size_t t = 0; t < sources.size(); ++t) {
      if (t % 2 == 0 && example.tokens[t] == write) written = static_cast<std::int32_t>(t) + 1;
      if (example.score_mask[t] != 0) sources[t] = written;
    }
    return sources;
  }

 private:
  enum Symbol : std::int32_t { write, read, ignore, zero, one };

  Example draw(Rng& rng, const double& p_ignore) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(static_cast<std::size_t>(length_));
    std::int32_t memory = zero;
    for (std::int64_t t = 0; t < length_; t += 2) {
      const std::int32_t instruction = t == 0 ? write : t == length_ - 2 ? read : draw_instruction(rng, p_ignore);
      const std::int32_t bit = instruction == read ? memory : (rng.bits() >> 31 ? one : zero);
      if (instruction == write) memory = bit;
      tokens.push_back(instruction);
      tokens.push_back(bit);
    }

    Example example = next_token_example(std::move(tokens));
    for (std::size_t t = 0; t + 1 < example.tokens.size(); ++t) {
      const bool is_read = example.tokens[t] == read;
      example.score_mask[t] = is_read;
      example.loss_mask[t] = is_read || loss_on_all_;
    }
    return example;
  }

  static std::int32_t draw_instruction(Rng& rng, double p_ignore) {
    if (rng.chance(p_ignore)) return ignore;
    return rng.bits() >> 31 ? read : write;
  }

  std::int64_t length_;
  bool loss_on_all_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(flip_flop, FlipFlopOptions, FlipFlop, "one bit of memory: write, read, ignore",
           "T/2 pairs of an instruction (w, r, i) and a bit; the bit after r repeats the one after the latest w, all\n"
           "other bits are uniform. The first instruction is w, the last r, the others are i with probability p_i, w\n"
           "and r with (1-p_i)/2 each. Loss and score are on the bit after r (option: loss on every symbol).",
           "Liu et al. 2023, arXiv 2306.00946; CoPE, arXiv 2405.18719, section 5.1");
