// String maps: copy, reverse, duplicate and sort a string (reverse, duplicate and bucket sort: Delétang et al. 2023,
// arXiv 2207.02098; copy: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization", arXiv
// 2305.19466).
//
// A sequence has n symbols, each uniform over an alphabet of A, then `=`, and the outputs: the string, the string
// backwards, the string twice, or its symbols in ascending order:
//
//   cab=cab   abb=bba   abb=abbabb   dbbea=abbde
//
// All symbols are fed, and position t predicts symbol t+1. Loss and score are on the outputs. n is uniform in 1..N in
// training, and larger than N in ood-long and ood-far. As published, A is 26 for copy, 2 for reverse and duplicate, and
// 5 for sort; an option can set it. With A = 2 the last few symbols do not identify a place in the string, so the
// source must be found by its position. With A = 26 they mostly do. Repeating the previous output is right in 1/A of
// the tokens, but in 69% (N = 20) to 89% (longer strings) when sorting. Reports therefore show the sequence error rate.
// Errors are broken down by length.
//
// The second paper's generator draws training and validation strings from the same few short ones: 5,750 of a length,
// only 100 of them different for length 1. Here evaluation strings have their own random numbers. A short one may still
// have been trained on, as intended.
#include <algorithm>

#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct StringMapOptions final : OptionsOf<StringMapOptions> {
  LengthOptions lengths;
  std::string map = "copy";
  std::int64_t alphabet = 0;

  void visit(OptionVisitor& visitor) override {
    lengths.visit(visitor);
    visitor.choice("map", map, {"copy", "reverse", "duplicate", "sort"}, "operation on the string");
    visitor.integer("alphabet", alphabet, "alphabet size; 0: 26 for copy, 2 for reverse and duplicate, 5 for sort", 0,
                    26);
  }
  std::int64_t symbols() const {
    if (alphabet > 0) return alphabet;
    return map == "copy" ? 26 : map == "sort" ? 5 : 2;
  }
};

class StringMap final : public LengthTask {
 public:
  StringMap(const StringMapOptions& options, const Seeds& seeds)
      : LengthTask({"string-map", symbols(options.symbols()), Writing::symbols, "length", true}, options.lengths, seeds,
                   options.map == "duplicate" ? 3 : 2),
        alphabet_(static_cast<std::uint32_t>(options.symbols())),
        map_(options.map) {}

 private:
  static std::vector<std::string> symbols(std::int64_t alphabet) {
    std::vector<std::string> names = letters('a', alphabet);
    names.emplace_back("=");
    return names;
  }

  std::vector<std::int32_t> mapped(std::vector<std::int32_t> string) const {
    if (map_ == "reverse") std::reverse(string.begin(), string.end());
    if (map_ == "sort") std::sort(string.begin(), string.end());
    if (map_ == "duplicate") {
      const std::size_t n = string.size();
      string.resize(2 * n);
      std::copy_n(string.begin(), n, string.begin() + static_cast<std::ptrdiff_t>(n));
    }
    return string;
  }

  Example draw_length(Rng& rng, std::int64_t n) const override {
    std::vector<std::int32_t> string(static_cast<std::size_t>(n));
    for (std::int32_t& symbol : string) symbol = static_cast<std::int32_t>(rng.below(alphabet_));
    const std::vector<std::int32_t> outputs = mapped(string);
    string.push_back(static_cast<std::int32_t>(alphabet_));
    return prompt_and_outputs(std::move(string), outputs);
  }

  std::uint32_t alphabet_;
  std::string map_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    string_map, StringMapOptions, StringMap, "copy, reverse, duplicate or sort a string",
    "n symbols, uniform over an alphabet, `=`, and the string again, backwards, twice, or sorted (option map). Train\n"
    "and in-distribution have 1 to N symbols, ood-long up to 5N/2, ood-far up to 25N/2. Loss and score are on the\n"
    "outputs; reports give the share of wrong sequences. Errors are broken down by length.",
    "Delétang et al. 2023, arXiv 2207.02098; Kazemnejad et al. 2023, arXiv 2305.19466");
