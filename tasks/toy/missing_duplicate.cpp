// Missing duplicate (Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy", arXiv 2207.02098): which bit of
// a repeated word is hidden?
//
// A word of n uniform bits appears twice. One of the 2n positions, uniform, holds `_` instead of its bit. Then comes
// `=`, at which the hidden bit is asked for. Its twin is n positions away from the blank. With n = 4:
//
//   011001_0=1
//
// Strings have up to N symbols in training: n is uniform in 1..N/2. It goes up to 5N/4 in ood-long and 25N/4 in
// ood-far. One guess is wrong in 50%. The left neighbour agrees with the answer in 50% (n = 1 reveals its answer).
// Errors are broken down by length, 2n.
//
// The released generator differs: length 1 is one fixed pair, an odd length is padded with a fourth symbol, and lengths
// 2 and 3 are `_x` or `x_`. Here all lengths are even and have the same distribution.
#include <utility>

#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct MissingDuplicateOptions final : OptionsOf<MissingDuplicateOptions> {
  LengthOptions lengths;

  void visit(OptionVisitor& visitor) override { lengths.visit(visitor); }
};

class MissingDuplicate final : public LengthTask {
 public:
  MissingDuplicate(const MissingDuplicateOptions& options, const Seeds& seeds)
      : LengthTask({"missing-duplicate", {"0", "1", "_", "="}, Writing::symbols, "length"}, of_words(options.lengths),
                   seeds, 2) {
    check(options.lengths.max_length % 2 == 0, "missing-duplicate", "max-length must be even, got {}",
          options.lengths.max_length);
  }

 private:
  // Options for words: a string of length 2n has words of length n.
  static LengthOptions of_words(LengthOptions strings) {
    strings.max_length /= 2;
    return strings;
  }
  enum Symbol : std::int32_t { zero, one, blank, equals };

  Example draw_length(Rng& rng, std::int64_t n) const override {
    const auto bits = static_cast<std::size_t>(n);
    std::vector<std::int32_t> tokens(2 * bits);
    for (std::size_t i = 0; i < bits; ++i) tokens[i] = tokens[bits + i] = static_cast<std::int32_t>(rng.below(2));
    std::int32_t& hidden = tokens[rng.below(static_cast<std::uint32_t>(2 * n))];
    const std::int32_t answer = std::exchange(hidden, blank);
    return one_answer(std::move(tokens), equals, answer);
  }
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    missing_duplicate, MissingDuplicateOptions, MissingDuplicate, "the hidden bit of a repeated word",
    "A word of n bits, twice, with one of the 2n bits hidden; then `=`, and the answer is the hidden bit. Train and\n"
    "in-distribution have 2n up to N, ood-long up to 5N/2, ood-far up to 25N/2. Loss and score are on the answer.\n"
    "Errors are broken down by length, 2n.",
    "Delétang et al. 2023, arXiv 2207.02098");
