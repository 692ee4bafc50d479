// N-back: recall the N-th last value of a key. This is the multi-query repeated associative recall of stick-breaking
// attention (Tan et al. 2024, arXiv 2410.17980) and, with N, of PaTH (Yang et al. 2025, arXiv 2505.16381, figure 2).
//
// A sequence has L pairs of a key and a value, T = 2L. Each key is uniform over K, each value over M, all independent.
// At a key the value of the N-th last EARLIER pair of that key is asked for, if there are N. With N = 2 (answers after
// `:`):
//
//   k0 v3 k1 v0 k0 v1 k0:v3 v2 k0:v1 v2
//
// The value that follows a key is new, so no answer is ever fed. Loss and score are on the keys that ask. One guess is
// wrong in 1 - 1/M of them. The value of the latest pair is right in 1/M of them for N > 1.
//
// The published model has 2 layers of width 256 and 2 heads, T 768, N 1 to 4 (figure 2 of PaTH, only curves; the preset
// `paper` has N = 2). Neither paper states the vocabulary, the positions of the queries or the training distribution.
// The distribution above is ours, close to the first paper's. Rankings of encodings are comparable with theirs, numbers
// are not.
#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct NBackOptions final : OptionsOf<NBackOptions> {
  std::int64_t pairs = 384;
  std::int64_t keys = 32;
  std::int64_t values = 32;
  std::int64_t n = 2;
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("pairs", pairs, "pairs in a sequence; ood-long has twice as many", 2, 1 << 19);
    visitor.integer("keys", keys, "keys; ood-dense uses the first half of them", 2, 10'000);
    visitor.integer("values", values, "values", 2, 10'000);
    visitor.integer("n", n, "which value is asked for: 1 is the latest", 1, 1000);
    visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
  }
};

struct NBackLaw {
  std::int64_t pairs, keys;
};

class NBack final : public ToyTask<NBackLaw> {
 public:
  NBack(const NBackOptions& options, const Seeds& seeds)
      : ToyTask({"n-back", symbols(options), Writing::tagged}, seeds),
        keys_(options.keys),
        values_(options.values),
        n_(static_cast<std::size_t>(options.n)) {
    check(options.n < options.pairs, "n-back", "n must be less than the number of pairs, got {} and {}", options.n,
          options.pairs);
    const auto add = [&](const char* name, std::int64_t count, const NBackLaw& law) {
      add_split({name, formatted("{} pairs of {} keys", law.pairs, law.keys), count, 2 * law.pairs}, law);
    };
    add("train", 0, {options.pairs, options.keys});
    add("in-distribution", options.eval_count, {options.pairs, options.keys});
    add("ood-long", options.eval_count, {2 * options.pairs, options.keys});
    add("ood-dense", options.eval_count, {options.pairs, options.keys / 2});
  }

 private:
  static std::vector<std::string> symbols(const NBackOptions& options) {
    std::vector<std::string> names = numbered("k", options.keys);
    append(names, numbered("v", options.values));
    return names;
  }

  Example draw(Rng& rng, const NBackLaw& law) const override {
    std::vector<std::vector<std::int32_t>> assigned(static_cast<std::size_t>(law.keys));  // values of each key so far
    Example example = tag_example(std::vector<std::int32_t>(static_cast<std::size_t>(2 * law.pairs)));
    for (std::size_t t = 0; t < example.tokens.size(); t += 2) {
      const std::uint32_t key = rng.below(static_cast<std::uint32_t>(law.keys));
      const auto value = static_cast<std::int32_t>(keys_ + rng.below(static_cast<std::uint32_t>(values_)));
      std::vector<std::int32_t>& earlier = assigned[key];
      if (earlier.size() >= n_) ask(example, t, earlier[earlier.size() - n_]);
      earlier.push_back(value);
      example.tokens[t] = static_cast<std::int32_t>(key);
      example.tokens[t + 1] = value;
    }
    return example;
  }

  std::int64_t keys_, values_;
  std::size_t n_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(n_back, NBackOptions, NBack, "recall the N-th last value of a key",
           "Pairs of a key and a value, both uniform; at a key the value of the N-th last earlier pair of that key is\n"
           "asked for, where there are N. Loss and score are on the keys that ask. ood-long has twice the pairs,\n"
           "ood-dense half the keys.",
           "Tan et al. 2024, arXiv 2410.17980; Yang et al. 2025 (PaTH), arXiv 2505.16381, figure 2");
