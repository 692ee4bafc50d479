// Group word problem (Merrill, Petty and Sabharwal 2024, "The Illusion of State in State-Space Models", arXiv
// 2404.08819): track the running product of group elements.
//
// The group G has order m: a5 (60), s5 (120), z60, a4xz5 (60) or s3 (6). A start symbol `^` and n uniform elements are
// fed. At the t-th element the number of the product g_1 g_2 .. g_t is asked for. In s3 (answers after `:`):
//
//   ^ 3:3 1:5 5:0
//
// Permutations are numbered in lexicographic order of their images (a5 and a4: only the even ones), so that 0 is the
// identity. The product ab applies a first, then b: (ab)[x] = b[a[x]]. z60 is addition. In a4xz5, (i, j) has number 5 i
// + j. The released code uses the numbering of its algebra package, which changes no error.
//
// The word problem of a5 and s5 is complete for NC1, and the word problem of z60 and a4xz5 is in TC0. A transformer of
// fixed depth can have a shortcut only for the latter. All answers are uniform, so one guess is wrong in 1 - 1/m. The
// first positions are easy, which token error hides. Reports therefore show the sequence error rate, and errors are
// broken down by t.
//
// The released data differ in two ways. Sequences are drawn without repetition (negligible). The start symbol also has
// a label, which raises the published share of right tokens by 1/(n+1). It is not scored here.
#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct GroupWordOptions final : OptionsOf<GroupWordOptions> {
  std::string group = "a5";
  std::int64_t length = 20;
  bool mix = false;
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("group", group, {"a5", "s5", "z60", "a4xz5", "s3"}, "the group of the elements");
    visitor.integer("length", length, "elements k in a sequence; ood-long has 2k", 2, 1 << 16);
    visitor.flag("mix", mix, "train on lengths 2 to k, as published, instead of only k");
    visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
  }
};

// An element is a permutation and a residue mod m, with the number m times the permutation's number plus the residue.
// All groups except a4xz5 have a single permutation or a single residue.
class Group {
 public:
  explicit Group(std::string_view name) {
    struct Kind {
      std::string_view name;
      std::size_t points;  // permuted points
      bool even_only;      // only even permutations
      std::int32_t modulus;
    };
    constexpr Kind kinds[]{
        {"a5", 5, true, 1}, {"s5", 5, false, 1}, {"z60", 1, false, 60}, {"a4xz5", 4, true, 5}, {"s3", 3, false, 1}};
    const Kind& kind = *std::ranges::find(kinds, name, &Kind::name);
    modulus_ = kind.modulus;
    Images images(kind.points);
    std::iota(images.begin(), images.end(), std::size_t{0});
    do {
      std::size_t inversions = 0;
      for (std::size_t y = 0; y < kind.points; ++y) {
        for (std::size_t x = 0; x < y; ++x) inversions += images[x] > images[y];
      }
      if (!kind.even_only || inversions % 2 == 0) permutations_.push_back(images);
    } while (std::next_permutation(images.begin(), images.end()));
  }
  std::int64_t order() const { return std::ssize(permutations_) * modulus_; }
  // The number of the product of elements a and b: a first, then b.
  std::int32_t product(std::int32_t a, std::int32_t b) const {
    const auto permutation = [&](std::int32_t element) -> const Images& {
      return permutations_[static_cast<std::size_t>(element / modulus_)];
    };
    Images images = permutation(a);
    for (std::size_t& image : images) image = permutation(b)[image];
    const auto found = std::ranges::lower_bound(permutations_, images);
    return static_cast<std::int32_t>(found - permutations_.begin()) * modulus_ + (a + b) % modulus_;
  }

 private:
  using Images = std::vector<std::size_t>;

  std::int32_t modulus_;
  std::vector<Images> permutations_;  // in lexicographic order
};

class GroupWord final : public ToyTask<LengthRange> {
 public:
  GroupWord(const GroupWordOptions& options, const Seeds& seeds) : GroupWord(Group(options.group), options, seeds) {}

 private:
  GroupWord(Group group, const GroupWordOptions& options, const Seeds& seeds)
      : ToyTask({"group-word", symbols(group), Writing::tagged, "t", true}, seeds), group_(std::move(group)) {
    const auto add = [&](const char* name, std::int64_t count, const LengthRange& law) {
      const std::string lengths = law.least == law.most ? "" : formatted("{} to ", law.least);
      add_split({name, formatted("{}{} elements of {}", lengths, law.most, options.group), count, law.most + 1}, law);
    };
    const std::int64_t k = options.length;
    add("train", 0, {options.mix ? 2 : k, k});
    add("in-distribution", options.eval_count, {k, k});
    add("ood-long", options.eval_count, {2 * k, 2 * k});
  }

  static std::vector<std::string> symbols(const Group& group) {
    std::vector<std::string> names = numbered("", group.order());
    names.emplace_back("^");
    return names;
  }

  Example draw(Rng& rng, const LengthRange& law) const override {
    const auto order = static_cast<std::uint32_t>(group_.order());
    const std::int64_t length = uniform_in(rng, law.least, law.most);
    std::vector<std::int32_t> tokens{static_cast<std::int32_t>(order)};
    for (std::int64_t t = 0; t < length; ++t) tokens.push_back(static_cast<std::int32_t>(rng.below(order)));
    Example example = tag_example(std::move(tokens));
    example.keys.assign(example.tokens.size(), 0);
    std::int32_t product = 0;
    for (std::size_t t = 1; t < example.tokens.size(); ++t) {
      product = group_.product(product, example.tokens[t]);
      ask(example, t, product);
      example.keys[t] = static_cast<std::int32_t>(t);
    }
    return example;
  }

  Group group_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(group_word, GroupWordOptions, GroupWord, "the product of group elements so far (a5, s5, z60, a4xz5, s3)",
           "A start symbol and elements of a group, uniform, each a symbol; at each the product so far is asked for.\n"
           "Loss and score are on all elements; reports give the share of wrong sequences. ood-long has twice the\n"
           "elements. Errors are broken down by t, the number of elements so far.",
           "Merrill, Petty and Sabharwal 2024, arXiv 2404.08819");
