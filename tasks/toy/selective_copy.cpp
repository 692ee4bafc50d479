// Selective copy (CoPE, arXiv 2405.18719, section 5.2): repeat the symbols of a prompt and skip its blanks.
//
// The prompt holds N non-blanks, each uniform among 15 symbols, and M blanks whose places are a uniform subset of the
// N + M; then the N non-blanks follow in order. T = 2 N + M, no separator. With N = 5, M = 4, blanks as _:
//
//   D__CF_F_E DCFFE
//
// All T symbols are fed, position t predicts symbol t+1. Loss and score are on the copied part alone.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "tasks/task.hpp"

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

class SelectiveCopy final : public Task {
 public:
  SelectiveCopy(const SelectiveCopyOptions& options, std::uint64_t seed, std::uint64_t data_seed)
      : non_blanks_(options.non_blanks) {
    for (std::uint32_t symbol = 0; symbol < symbol_count; ++symbol) {
      vocabulary_.emplace_back(1, static_cast<char>('A' + symbol));
    }
    vocabulary_.emplace_back("_");
    add_split("train", 0, options.blanks, seed);
    add_split("in-distribution", options.eval_count, options.blanks, data_seed);
    add_split("ood-dense", options.eval_count, options.dense_blanks, data_seed);
    add_split("ood-sparse", options.eval_count, options.sparse_blanks, data_seed);
  }

  const std::vector<std::string>& vocabulary() const override { return vocabulary_; }
  const std::vector<Split>& splits() const override { return splits_; }

  Example example(std::string_view split_name, std::int64_t index) const override {
    const Split& split = split_holding(split_name, index);
    const Source& source = sources_[static_cast<std::size_t>(&split - splits_.data())];
    Rng rng = sequence_rng(source.seed, "selective-copy", split.name, index);

    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> copy;
    tokens.reserve(static_cast<std::size_t>(split.length));
    copy.reserve(static_cast<std::size_t>(non_blanks_));
    // Selection sampling (Knuth, volume 2, algorithm 3.4.2 S): a place is blank with probability (blanks left) over
    // (places left), which makes every subset equally likely.
    std::int64_t blanks_left = source.blanks;
    for (std::int64_t places_left = non_blanks_ + source.blanks; places_left > 0; --places_left) {
      if (rng.below(static_cast<std::uint32_t>(places_left)) < blanks_left) {
        tokens.push_back(blank);
        --blanks_left;
      } else {
        copy.push_back(static_cast<std::int32_t>(rng.below(symbol_count)));
        tokens.push_back(copy.back());
      }
    }
    const std::size_t prompt_length = tokens.size();
    tokens.insert(tokens.end(), copy.begin(), copy.end());

    Example example = next_token_example(std::move(tokens));
    for (std::size_t t = prompt_length - 1; t + 1 < example.tokens.size(); ++t) {
      example.loss_mask[t] = 1;
      example.score_mask[t] = 1;
    }
    return example;
  }

  // The paper's 100.0 (0.0) of rope is out of reach for guesses counted one by one.
  bool scores_sequences() const override { return true; }

  std::vector<std::string> roles(const Example& example) const override {
    std::vector<std::string> roles;
    for (std::size_t t = 0; t < example.tokens.size(); ++t) {
      const bool copied = t > 0 && example.score_mask[t - 1] != 0;
      roles.emplace_back(copied ? "copy" : example.tokens[t] == blank ? "blank" : "symbol");
    }
    return roles;
  }
  // The symbol of the prompt that comes next.
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

  std::string text(const Example& example) const override { return join_symbols(vocabulary_, example.tokens, ""); }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    return encode_characters(vocabulary_, text);
  }

 private:
  struct Source {
    std::int64_t blanks;
    std::uint64_t seed;
  };

  void add_split(std::string name, std::int64_t count, std::int64_t blanks, std::uint64_t seed) {
    splits_.push_back({std::move(name), concat(non_blanks_, " non-blanks among ", blanks, " blanks"), count,
                       2 * non_blanks_ + blanks});
    sources_.push_back({blanks, seed});
  }

  std::int64_t non_blanks_;
  std::vector<std::string> vocabulary_;
  std::vector<Split> splits_;
  std::vector<Source> sources_;  // one for each split
};

}  // namespace
}  // namespace tally

TALLY_TASK(selective_copy, SelectiveCopyOptions, SelectiveCopy, "copy the symbols of a prompt, skip its blanks",
           "A prompt of non-blanks (uniform among 15 symbols, A-O) with blanks (_) at random places among them, then\n"
           "the non-blanks in order. Loss and score are on the copied part alone.",
           "Golovneva et al. 2024 (CoPE), arXiv 2405.18719, section 5.2");
