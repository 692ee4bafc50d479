// The reports of 'tally check' on encodings that break one property each.
#include "tasks/checks/encoding_check.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "core/error.hpp"

namespace tally::encoding_check_test {

struct NoChoices final : OptionsOf<NoChoices> {
  void visit(OptionVisitor&) override {}
};

// Every token depends on all later tokens.
struct LooksAhead final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    return output + sum(output, {2}, true) * 0.1;
  }
};

struct HasAnIdleParameter final : Encoding {
  explicit HasAnIdleParameter(const EncodingSetup& setup)
      : idle_(setup.parameter("idle", {setup.heads}, Fill::constant(1), Scope::layer)) {}
  Tensor idle_;
};

struct LosesAGradient final : Encoding {
  explicit LosesAGradient(const EncodingSetup& setup)
      : factor_(setup.parameter("factor", {1}, Fill::constant(1), Scope::layer)) {}
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    return output * factor_ * factor_.detach();
  }
  Tensor factor_;
};

// The previous row is not available during generation.
struct DoesNotKeep final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    const Tensor none = slice(output, 2, 0, 1) * 0.0;
    if (output.size(2) == 1) return output + none;
    return output + concat(std::vector<Tensor>{none, slice(output, 2, 0, output.size(2) - 1)}, 2);
  }
};

// One number per key, for every query, with `times` calls of in.keep.
template <int times>
struct Keeps final : Encoding {
  explicit Keeps(const EncodingSetup& setup)
      : weight_(setup.parameter("weight", {setup.heads, setup.width}, setup.start->linear_weight(setup.width),
                                Scope::layer)) {}
  void score(const AttentionInput& in, Score& score) const override {
    Tensor column = transpose(linear(in.x, weight_), 1, 2);
    for (int n = 0; n < times; ++n) column = in.keep("column", column, 2);
    score.biases.push_back(RowColumn{{}, cast(column, DType::f64)});
  }
  Tensor weight_;
};

struct RoundsAway final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override { return (output + 1e5) + -1e5; }
};

struct HidesItsLimit final : Encoding {
  void check_length(std::int64_t length) const override { check(length <= 12, "short", "too long"); }
};

struct CountsThreads final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    return output * (1 + 1e-3 * thread_count());
  }
};

struct KnowsItsDevice final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    return output * (output.device() == Device{} ? 1.0 : 1.01);
  }
};

// Every model is different.
struct DiffersFromModelToModel final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override { return output * factor_; }
  double factor_ = 1 + 0.01 * ++models;
  static inline int models = 0;
};

// It adds the values of the wrong key heads.
struct MixesUpKeyHeads final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput& in) const override {
    return output + concat(std::vector<Tensor>(static_cast<std::size_t>(in.q.size(1) / in.v.size(1)), in.v), 1);
  }
};

struct NeedsAllKeyHeads final : Encoding {
  void score(const AttentionInput& in, Score& score) const override { score.biases.push_back(Product{in.q, in.q}); }
};

struct NeedsToBeAlone final : Encoding {
  void score(const AttentionInput&, Score& score) const override {
    check(score.biases.empty(), "sizes", "they differ");
  }
};

struct ZeroOption final : OptionsOf<ZeroOption> {
  double share = 0;
  std::int64_t count = 2;
  void visit(OptionVisitor& visitor) override {
    visitor.real("share", share, "below 1", 0, below(1));
    visitor.integer("count", count, "at least 2", 2);
  }
};
struct LooksAheadByOptions final : Encoding {
  LooksAheadByOptions(const EncodingSetup&, const ZeroOption& options)
      : factor_(options.count > 2 ? options.share : 0) {}
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    return output + sum(output, {2}, true) * factor_;
  }
  double factor_;
};

struct IsNoNumber final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    return output * std::numeric_limits<double>::quiet_NaN();
  }
};

template <class EncodingType, class OptionsType = NoChoices>
EncodingChoice choice_of(const char* name) {
  static const EncodingEntry entry = encoding_entry<OptionsType, EncodingType>(name, "", "", "");
  EncodingChoice choice;
  choice.parts.push_back({&entry, entry.make_options()});
  return choice;
}

// The names of the failed properties of these variants, or of one in `step`.
std::set<std::string> wrong_properties(const std::vector<EncodingVariant>& variants, std::size_t step = 1) {
  std::set<std::string> wrong;
  for (std::size_t n = 0; n < variants.size(); n += step) {
    for (const EncodingProperty& property : encoding_properties()) {
      const Finding found = look_at(property, variants[n]);
      EXPECT_FALSE(found.text.empty()) << property.name;
      if (found.kind == Finding::Kind::wrong) wrong.insert(property.name);
    }
  }
  return wrong;
}

std::set<std::string> wrong_properties(const EncodingChoice& choice, std::size_t step = 1) {
  return wrong_properties(variants_of(choice), step);
}

using Names = std::set<std::string>;

TEST(EncodingCheck, NamesEachBrokenPromise) {
  EXPECT_EQ(wrong_properties(choice_of<LooksAhead>("looks-ahead")), (Names{"causality", "generation", "length"}));
  EXPECT_EQ(wrong_properties(choice_of<HasAnIdleParameter>("has-an-idle-parameter")), Names{"parameters"});
  EXPECT_EQ(wrong_properties(choice_of<LosesAGradient>("loses-a-gradient")), Names{"gradients"});
  EXPECT_EQ(wrong_properties(choice_of<DoesNotKeep>("does-not-keep")), Names{"generation"});
  EXPECT_EQ(wrong_properties(choice_of<RoundsAway>("rounds-away")), Names{"precision"});
  EXPECT_EQ(wrong_properties(choice_of<HidesItsLimit>("hides-its-limit")), Names{"length"});
  EXPECT_EQ(wrong_properties(choice_of<CountsThreads>("counts-threads")), Names{"threads"});
  EXPECT_EQ(wrong_properties(choice_of<KnowsItsDevice>("knows-its-device")), Names{"devices"});
  EXPECT_EQ(wrong_properties(choice_of<MixesUpKeyHeads>("mixes-up-key-heads")), Names{"key-heads"});
  EXPECT_EQ(wrong_properties(choice_of<NeedsAllKeyHeads>("needs-all-key-heads")), (Names{"generation", "key-heads"}));
  const Names between = wrong_properties(choice_of<DiffersFromModelToModel>("differs"));
  const Names nowhere = wrong_properties(choice_of<IsNoNumber>("is-no-number"));
  for (const char* name : {"forms", "precision", "threads", "devices"}) {
    EXPECT_TRUE(between.contains(name)) << name;
    EXPECT_TRUE(nowhere.contains(name)) << name;
  }
  EXPECT_TRUE(nowhere.contains("generation") && nowhere.contains("length"));
}

Finding finding(const char* name, EncodingChoice choice) {
  for (const EncodingProperty& property : encoding_properties()) {
    if (property.name == name) return look_at(property, {std::move(choice), ""});
  }
  return {};
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// If a tensor of keys was not kept, or kept twice, the report names the hook.
TEST(EncodingCheck, SaysWhereItIs) {
  EXPECT_EQ(finding("causality", choice_of<LooksAhead>("looks-ahead")).text,
            "what is computed at token 0 changes with token 1");
  EXPECT_TRUE(says(finding("parameters", choice_of<HasAnIdleParameter>("idle")).text,
                   "idle: nothing that is computed uses it"));
  EXPECT_EQ(finding("generation", choice_of<Keeps<1>>("keeps")).kind, Finding::Kind::good);
  const std::string by_shape = finding("generation", choice_of<Keeps<0>>("forgets")).text,
                    by_value = finding("generation", choice_of<DoesNotKeep>("forgets")).text,
                    twice = finding("generation", choice_of<Keeps<2>>("doubles")).text,
                    ahead = finding("generation", choice_of<LooksAhead>("looks-ahead")).text;
  const std::string hint = "a tensor of earlier tokens, such as one of the keys, was probably not handed to in.keep";
  for (const std::string& text : {by_shape, by_value}) {
    EXPECT_TRUE(says(text, "for the tokens 5 to 7, computed after the others; " + hint)) << text;
  }
  EXPECT_TRUE(says(by_value, "differ by ")) << by_value;
  EXPECT_TRUE(says(twice, "'column' has 10 rows after 5 tokens: in.keep takes each tensor once")) << twice;
  // There was no tensor to keep.
  EXPECT_TRUE(says(ahead, "for the tokens 0 to 4") && !says(ahead, hint)) << ahead;
}

std::string labels_of(const std::vector<EncodingVariant>& variants) {
  std::vector<std::string> labels;
  for (const EncodingVariant& one : variants) labels.push_back(one.label);
  return joined(labels, "; ");
}

// A number takes another value in its range, also if its default is 0. Values that are wrong only together are found.
TEST(EncodingCheck, ChangesEachOptionAndAllTogether) {
  const auto variants = variants_of(choice_of<LooksAheadByOptions, ZeroOption>("zero"));
  EXPECT_EQ(labels_of(variants), "zero; zero share=0.5; zero count=3; zero share=0.5 count=3");
  EXPECT_EQ(wrong_properties(variants), (Names{"causality", "generation", "length"}));
  for (const EncodingVariant& one : variants_of(EncodingChoice::parse("rope"))) {
    EXPECT_NO_THROW(encoding_model(one.choice)) << one.label;
  }
}

// A variant that the encoding refuses is left out, and one that fails in any other way is reported.
TEST(EncodingCheck, LooksAtAnEncodingInCompany) {
  EXPECT_EQ(labels_of(variants_in_company(EncodingChoice::parse("cope"), "cope p-max=3")),
            "cope p-max=3 kv-heads=1; cope p-max=3 kv-heads=2; cope p-max=3 +alibi; cope p-max=3 +rope "
            "cope.rotated-query=true; cope p-max=3 +rope; cope p-max=3 [window=20,first=2]");
  EXPECT_EQ(labels_of(variants_in_company(EncodingChoice::parse("0:rope,1:none"), "it")),
            "it kv-heads=1; it kv-heads=2");
  const EncodingChoice alone = choice_of<NeedsToBeAlone>("needs-to-be-alone");
  EXPECT_EQ(wrong_properties(alone), Names{});
  EXPECT_EQ(wrong_properties(variants_in_company(alone, "it")).size(), encoding_properties().size());
  EXPECT_EQ(wrong_properties(variants_in_company(EncodingChoice::parse("cope"), "it")), Names{});
}

TEST(EncodingCheck, KeptByEncodingsOfEveryKind) {
  for (const char* text : {"hard", "rope+stick-breaking", "0:rope,1:fox@0,alibi@1"}) {
    EXPECT_EQ(wrong_properties(EncodingChoice::parse(text), 9), Names{}) << text;
  }
}

}  // namespace tally::encoding_check_test
