// Last x (the example of CoPE, arXiv 2405.18719, section 3.1, as a task): find the last x in "yyyyxyyy".
//
// Each symbol has one of C colours. The last of T symbols is `?`. A gap g is drawn uniformly from g_low..g_high. The g
// symbols before `?` are y, and the symbol before them is an x. Each earlier symbol is an x with probability p_x, else
// a y. All colours are uniform. At `?` the colour of the last x is asked for:
//
//   y3 x1 x6 y2 y2 ? x6          T = 6, g = 2, the answer behind
//
// The task only requires the choice of one token: all x may have equal keys, and the colours of y and of earlier x are
// noise. The paper uses this setting for a derivation. Suppose that the attention logit of x is Δ above the logit of y,
// and that logits fall by at least δ per position. Then positions outweigh content once the x is more than Δ/δ steps
// away.
//
// Training uses every position from the first x on, which must give the colour of the last x so far (with an option,
// only `?`). Only `?` is scored.
#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct LastXOptions final : OptionsOf<LastXOptions> {
  std::int64_t length = 64;
  std::int64_t colours = 8;
  std::int64_t near_gap = 15;
  std::int64_t far_gap = 31;
  std::int64_t farther_gap = 55;
  double p_x = 0.5;
  std::string loss = "all";
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    constexpr std::int64_t most = 1 << 20;
    visitor.integer("length", length, "symbols in a sequence, `?` included", 4, most);
    visitor.integer("colours", colours, "colours of x and of y", 2, 1000);
    visitor.integer("near-gap", near_gap, "largest gap of train, in-distribution, ood-sparse and ood-dense; least 0", 0,
                    most);
    visitor.integer("far-gap", far_gap, "largest gap of ood-far; least near-gap + 1", 1, most);
    visitor.integer("farther-gap", farther_gap, "largest gap of ood-farther; least far-gap + 1", 2, most);
    visitor.real("p-x", p_x, "probability of x before the last; 0.1 in ood-sparse, 0.9 in ood-dense", 0, 1);
    visitor.choice("loss", loss, {"all", "last"}, "train on every position from the first x on, or only on `?`");
    visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
  }
};

struct LastXLaw {
  std::int64_t least_gap, most_gap;
  double p_x;
};

class LastX final : public ToyTask<LastXLaw> {
 public:
  LastX(const LastXOptions& options, const Seeds& seeds)
      : ToyTask({"last-x", symbols(options.colours), Writing::words, "gap"}, seeds),
        length_(options.length),
        colours_(options.colours),
        loss_on_all_(options.loss == "all") {
    check(options.near_gap < options.far_gap && options.far_gap < options.farther_gap, "last-x",
          "near-gap, far-gap and farther-gap must rise, got {}, {} and {}", options.near_gap, options.far_gap,
          options.farther_gap);
    check(options.farther_gap <= length_ - 2, "last-x",
          "farther-gap {} does not fit before `?` into a length of {}: length - 2 at most", options.farther_gap,
          length_);
    const auto add = [&](const char* name, std::int64_t count, const LastXLaw& law) {
      add_split({name, formatted("gaps {} to {}, p_x = {}", law.least_gap, law.most_gap, law.p_x), count, length_},
                law);
    };
    const std::int64_t near = options.near_gap, far = options.far_gap, count = options.eval_count;
    add("train", 0, {0, near, options.p_x});
    add("in-distribution", count, {0, near, options.p_x});
    add("ood-far", count, {near + 1, far, options.p_x});
    add("ood-farther", count, {far + 1, options.farther_gap, options.p_x});
    add("ood-sparse", count, {0, near, 0.1});
    add("ood-dense", count, {0, near, 0.9});
  }

  // The vocabulary symbol without its colour.
  std::vector<std::string> roles(const Example& example) const override {
    std::vector<std::string> roles = Task::roles(example);
    for (std::string& role : roles) role.resize(1);
    return roles;
  }
  // The index of the last x.
  std::vector<std::int32_t> sources(const Example& example) const override {
    std::vector<std::int32_t> sources(example.tokens.size(), -1);
    std::int32_t last = -1;
    for (std::size_t t = 0; t < sources.size(); ++t) {
      if (example.tokens[t] < colours_) last = static_cast<std::int32_t>(t);
      if (example.score_mask[t] != 0) sources[t] = last;
    }
    return sources;
  }

 private:
  static std::vector<std::string> symbols(std::int64_t colours) {
    std::vector<std::string> names = numbered("x", colours);
    append(names, numbered("y", colours));
    names.emplace_back("?");
    return names;
  }

  Example draw(Rng& rng, const LastXLaw& law) const override {
    const std::int64_t gap = uniform_in(rng, law.least_gap, law.most_gap);
    const std::int64_t last_x = length_ - 2 - gap;
    std::vector<std::int32_t> tokens, latest;  // index of the last x at each position; -1 before the first
    for (std::int64_t t = 0; t + 1 < length_; ++t) {
      const bool is_x = t == last_x || (t < last_x && rng.chance(law.p_x));
      const auto colour = static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(colours_)));
      const std::int32_t before = latest.empty() ? -1 : latest.back();
      tokens.push_back(is_x ? colour : static_cast<std::int32_t>(colours_) + colour);
      latest.push_back(is_x ? colour : before);
    }
    tokens.push_back(static_cast<std::int32_t>(2 * colours_));

    Example example = tag_example(std::move(tokens));
    for (std::size_t t = 0; loss_on_all_ && t < latest.size(); ++t) {
      if (latest[t] >= 0) train_on(example, t, latest[t]);
    }
    ask(example, example.tokens.size() - 1, latest.back());
    set_key(example, gap);
    return example;
  }

  std::int64_t length_, colours_;
  bool loss_on_all_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    last_x, LastXOptions, LastX, "find the last x, however many y follow it",
    "Symbols x and y in C colours, then `?`: the answer is the colour of the last x, which stands a gap g before\n"
    "the end of the symbols. g is uniform up to near-gap in training and beyond it in ood-far and ood-farther;\n"
    "before the last x each symbol is an x with probability p_x. Scored is the answer at `?`; loss also at every\n"
    "position from the first x on, for the last x so far (option). Errors are broken down by gap.",
    "Golovneva et al. 2024 (CoPE), arXiv 2405.18719, section 3.1");
