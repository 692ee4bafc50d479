// What --pe names: encodings by name, sums, their options, and the rules of sums.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally {
namespace encoding_choice_test {

using testing::attention_output;
using testing::AttentionSizes;
using testing::make_encoding;
using testing::normal_tensor;

using testing::error_of;

TEST(EncodingChoice, SaysWhatIsWrongWithAName) {
  EXPECT_EQ(error_of([] { EncodingChoice::parse("coep"); }),
            "[encoding] there is no encoding 'coep'; did you mean 'cope'?");
  EXPECT_EQ(error_of([] { EncodingChoice::parse("nope"); }),
            "[encoding] there is no encoding 'nope'; here it is 'none'");
  EXPECT_EQ(error_of([] { EncodingChoice::parse("rope+sba"); }),
            "[encoding] there is no encoding 'sba'; here it is 'stick-breaking'");
  const std::string unknown = error_of([] { EncodingChoice::parse("something-else-entirely"); });
  for (const EncodingEntry* entry : encoding_registry()) EXPECT_NE(unknown.find(entry->name), std::string::npos);
}

TEST(EncodingChoice, SetsOptionsOfOneAndOfASum) {
  EncodingChoice one = EncodingChoice::parse("cope");
  one.set_option("p-max", "16");
  one.set_option("cope.gates", "values");
  const std::vector<OptionInfo> infos = list_options(*one.parts[0].options);
  EXPECT_EQ(to_text(infos[0].value), "16");
  EXPECT_EQ(to_text(infos[3].value), "values");

  EncodingChoice sum = EncodingChoice::parse("cope+relative");
  sum.set_option("p-max", "16");
  sum.set_option("far", "cap");
  sum.set_option("relative.share", "model");
  EXPECT_EQ(to_text(list_options(*sum.parts[0].options)[0].value), "16");
  EXPECT_EQ(to_text(list_options(*sum.parts[1].options)[0].value), "cap");
  EXPECT_EQ(to_text(list_options(*sum.parts[1].options)[1].value), "model");

  const EncodingChoice copy = sum.clone();
  sum.set_option("p-max", "8");
  EXPECT_EQ(to_text(list_options(*copy.parts[0].options)[0].value), "16");
}

TEST(EncodingChoice, ComesFromATextWithOptions) {
  EncodingChoice expected = EncodingChoice::parse("cope+rope");
  expected.set_option("p-max", "8");
  expected.set_option("base", "100");
  expected.set_option("layout", "interleaved");
  const EncodingChoice found = encoding("cope+rope", {{"p-max", 8}, {"rope.base", 100.0}, {"layout", "interleaved"}});
  ASSERT_EQ(found.text(), "cope+rope");
  for (std::size_t n = 0; n < 2; ++n) {
    const std::vector<OptionInfo> a = list_options(*found.parts[n].options),
                                  b = list_options(*expected.parts[n].options);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].value, b[i].value) << a[i].name;
  }
  EXPECT_NE(error_of([] { encoding("rope", {{"bass", 100}}); }).find("did you mean 'base'?"), std::string::npos);
}

TEST(EncodingChoice, SaysWhatIsWrongWithAnOption) {
  EncodingChoice sum = EncodingChoice::parse("cope+relative");
  EXPECT_EQ(error_of([&] { sum.set_option("share", "none"); }),
            "[encoding] option share is ambiguous: write cope.share or relative.share");
  EncodingChoice three = EncodingChoice::parse("relative+cope-mlp+cope");
  EXPECT_EQ(error_of([&] { three.set_option("rotated-query", "true"); }),
            "[encoding] option rotated-query is ambiguous: write cope.rotated-query or cope-mlp.rotated-query or "
            "relative.rotated-query");
  EXPECT_EQ(error_of([&] { sum.set_option("pmax", "3"); }),
            "[cope+relative] unknown option 'pmax'; did you mean 'p-max'?");
  EXPECT_EQ(error_of([&] { sum.set_option("rope.base", "3"); }),
            "[encoding] option rope.base is for 'rope', which is not part of cope+relative");
  EXPECT_NE(error_of([&] { sum.set_option("cope.p-max", "0"); }).find("p-max"), std::string::npos);
  EncodingChoice none = EncodingChoice::parse("none");
  EXPECT_NE(error_of([&] { none.set_option("p-max", "3"); }).find("unknown option 'p-max'"), std::string::npos);
}

TEST(EncodingChoice, SaysWhatQueriesSee) {
  const auto piece_of = [](std::string_view text) { return EncodingChoice::parse(text).acting().front(); };
  const EncodingChoice one = EncodingChoice::parse("rope+cope[first=4,window=256]");
  EXPECT_EQ(one.text(), "cope+rope[window=256,first=4]");
  EXPECT_EQ(EncodingChoice::parse(one.text()).text(), one.text());
  EXPECT_TRUE(one.acting().front().mask == (AttentionMask{.window = 256, .first = 4}));
  EXPECT_TRUE(piece_of("none").mask == AttentionMask{});
  EXPECT_EQ(EncodingChoice::parse("3:none,0-2:rope[window=4096,chunk=8192]").text(),
            "0-2:rope[window=4096,chunk=8192],3:none");
  EXPECT_EQ(EncodingChoice::parse("cope[chunk=5]@0-1,alibi@2-3").text(), "cope[chunk=5]@0-1,alibi@2-3");

  const auto error = [](std::string_view text) { return error_of([&] { EncodingChoice::parse(text); }); };
  for (const std::string_view text :
       {"rope[window]", "rope[window=0]", "rope[window=-1]", "rope[window=9223372036854775806]", "rope[window=x]",
        "rope[]", "rope[size=3]", "rope[window=3,]"}) {
    EXPECT_NE(error(text).find("is no part of an attention mask; write window=256"), std::string::npos) << text;
  }
  EXPECT_EQ(error("rope[window=3,window=4]"), "[encoding] 'rope[window=3,window=4]' says window twice");
  EXPECT_EQ(error("rope[first=3]"), "[encoding] first = 3 has no effect without a window or a chunk");
  for (const std::string_view text : {"rope[window=3", "rope[window=3]x", "rope[window=3]+cope"}) {
    EXPECT_NE(error(text).find("has a bracket that does not end it"), std::string::npos) << text;
  }
}

// Encodings for these tests only, one hook each.
struct Whole final : Encoding {
  Tensor mix(const AttentionInput& in) const override { return multiply(in.v, 2.0); }
};
struct Even final : Encoding {  // every key counts the same
  Tensor weights(const Tensor& logits, const Tensor& seen, const AttentionInput& in) const override {
    return Encoding::weights(multiply(logits, 0.0), seen, in);
  }
};
struct Turning final : Encoding {
  void rotate(Tensor& q, Tensor&, Tensor&, const AttentionInput&) const override { q = q + 1.0; }
};
struct Norming final : Encoding {
  void rotate(Tensor& q, Tensor&, Tensor&, const AttentionInput&) const override { q = q * 3.0; }
};
struct Doubling final : Encoding {
  Tensor finish(const Tensor& output, const AttentionInput&) const override { return multiply(output, 2.0); }
};
struct FlatToeplitz final : Encoding {
  void score(const AttentionInput& in, Score& score) const override {
    score.biases.push_back(Toeplitz{in.distances()});
  }
};
struct Widening final : Encoding {
  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput&) const override {
    q = concat(std::vector<Tensor>{q, q}, 3);
    k = concat(std::vector<Tensor>{k, k}, 3);
  }
};
struct ReadsTheRotatedQuery final : Encoding {
  void score(const AttentionInput& in, Score& score) const override {
    score.biases.push_back(Product{in.query(true), in.k});
  }
};
struct ShortToeplitz final : Encoding {
  void score(const AttentionInput& in, Score& score) const override {
    score.biases.push_back(Toeplitz{Tensor::zeros({in.q.size(1), in.q.size(2) - 1}, DType::f64)});
  }
};
struct DenseBias final : Encoding {
  void score(const AttentionInput& in, Score& score) const override {
    score.biases.push_back(Dense{normal_tensor("bias", {1, 1, in.q.size(2), in.q.size(2)})});
  }
};

template <class Made>
EncodingEntry entry_of(const std::string& name, const EncodingTraits& said = {}) {
  return encoding_entry<NoOptions, Made>(name, "", "", "", said);
}
constexpr EncodingTraits before_rotations{.before_rotations = true};

// Attention of a sum of such entries.
Tensor output_of(std::initializer_list<const EncodingEntry*> entries) {
  EncodingChoice choice;
  for (const EncodingEntry* entry : entries) choice.parts.push_back({entry, entry->make_options()});
  const AttentionSizes sizes;
  const auto encoding = make_encoding(choice, sizes, nullptr);
  const Shape shape{sizes.batch, sizes.heads, sizes.length, sizes.head_width};
  return attention_output(*encoding, normal_tensor("x", {sizes.batch, sizes.length, sizes.width()}),
                          normal_tensor("q", shape), normal_tensor("k", shape), normal_tensor("v", shape));
}

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(to_text(a.shape()), to_text(b.shape()));
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_NEAR(x[n], y[n], 1e-12);
}

TEST(EncodingSum, RefusesTwoRulesForTheWeightsAndAWholeAttentionInASum) {
  const EncodingEntry first = entry_of<Even>("first"), second = entry_of<Even>("second"),
                      whole = entry_of<Whole>("whole");
  EXPECT_EQ(error_of([&] {
              output_of({&first, &second});
            }),
            "[encoding] first+second: two parts each take the place of the softmax; keep one of them");
  EXPECT_EQ(error_of([&] {
              output_of({&first, &whole});
            }),
            "[encoding] first+whole: whole computes the whole attention and cannot be combined");
}

TEST(EncodingSum, RefusesAWholeAttentionInAWindow) {
  const EncodingEntry whole = entry_of<Whole>("whole");
  EncodingChoice choice;
  choice.parts.push_back({&whole, whole.make_options()});
  choice.assignments.push_back({.mask = {.window = 3}, .sum = {&whole}});
  EXPECT_EQ(error_of([&] { make_encoding(choice, AttentionSizes{}, nullptr); }),
            "[encoding] whole[window=3]: whole computes the whole attention and supports no attention mask");
}

// Fused attention supports a factor of whole logits only if nothing is added to the scores.
TEST(EncodingTraits, FollowFromTheScoreOfTheseOptions) {
  const auto traits_of = [](const std::string& text, const std::string& whole) {
    EncodingChoice choice = EncodingChoice::parse(text);
    choice.set_option("ssmax.whole", whole);
    return make_encoding(
               choice, AttentionSizes{},
               [](std::string_view name, const Shape& shape, const Fill&) { return normal_tensor(name, shape); })
        ->traits;
  };
  EXPECT_FALSE(traits_of("ssmax", "true").is_composed());
  EXPECT_FALSE(traits_of("cope-alibi+ssmax", "false").is_composed());
  EXPECT_TRUE(traits_of("cope-alibi+ssmax", "true").is_composed());
  EXPECT_TRUE(traits_of("alibi+ssmax", "true").is_composed());
}

// Whatever their names: 3 q + 1, not 3 (q + 1).
TEST(EncodingSum, TurnsWhatNormsAndShiftsLeave) {
  const EncodingEntry turning = entry_of<Turning>("a"), norming = entry_of<Norming>("b", before_rotations),
                      norming_first = entry_of<Norming>("a", before_rotations), turning_last = entry_of<Turning>("b");
  const Shape shape{1, 2, 5, 4};
  const Tensor q = normal_tensor("q", shape) * 3.0 + 1.0;
  const Tensor weights = causal_softmax(matmul(q, transpose(normal_tensor("k", shape), -1, -2), 0.5));
  const Tensor expected = matmul(weights, normal_tensor("v", shape));
  expect_near(output_of({&turning, &norming}), expected);
  expect_near(output_of({&norming_first, &turning_last}), expected);
}

TEST(EncodingChoice, NotesFlagsWithoutEffect) {
  const auto notes_of = [](std::string_view text) { return encoding(text, {{"cope.rotated-query", true}}).notes(); };
  EXPECT_TRUE(EncodingChoice::parse("cope").notes().empty());
  EXPECT_EQ(
      notes_of("0:rope,1:cope"),
      std::vector<std::string>{"note: cope.rotated-query=true changes nothing: cope is not combined with a rotation"});
  EXPECT_TRUE(notes_of("cope+rope").empty());
  EXPECT_EQ(encoding("0:rope+ssmax,1:alibi", {{"ssmax.whole", true}}).notes(),
            std::vector<std::string>{
                "note: ssmax.whole=true changes nothing: ssmax is not combined with what changes scores"});
  EXPECT_TRUE(encoding("alibi+ssmax", {{"ssmax.whole", true}}).notes().empty());
}

TEST(EncodingChoice, RefusesOptionsThatContradictEachOther) {
  using Settings = std::initializer_list<std::pair<std::string_view, OptionValue>>;
  const auto complaint = [](const char* text, Settings settings) {
    return error_of([&] {
      make_encoding(encoding(text, settings), AttentionSizes{},
                    [](std::string_view name, const Shape& shape, const Fill&) { return normal_tensor(name, shape); });
    });
  };
  EXPECT_EQ(complaint("rope", {{"stretch", "pi"}, {"trained-length", 64}}),
            "[rope] trained-length = 64 has no effect with stretch = pi; it is for stretch = dynamic or yarn or llama3 "
            "or longrope");
  EXPECT_EQ(complaint("path", {{"conv", false}, {"conv-size", 4}}),
            "[path] conv-size = 4 has no effect with conv = false; it is for conv = true");
  for (const char* const name : {"cope-alibi", "contextual-rotary"}) {
    // Without a separate product, q is only in the score, in which rotations act anyway.
    EXPECT_EQ(
        complaint(name, {{"rotated-query", true}}),
        formatted("[{}] rotated-query = true has no effect with gates = keys; it is for gates = sep-keys or values",
                  name));
    EXPECT_EQ(complaint(name, {{"rotated-query", true}, {"gates", "values"}}), "");
  }
  EXPECT_EQ(complaint("cope", {{"rotated-query", true}}), "");

  EXPECT_EQ(complaint("rope", {{"stretch", "yarn"}, {"beta-slow", 32.0}}),
            "[rope] beta-slow = 32 must be less than beta-fast = 32");
  EXPECT_EQ(complaint("rope", {{"stretch", "llama3"}, {"low-freq-factor", 4.0}}),
            "[rope] low-freq-factor = 4 must be less than high-freq-factor = 4");
  EXPECT_EQ(complaint("rope", {{"stretch", "longrope"}, {"long-factors", "1/2/3"}}),
            "[rope] long-factors has 3 numbers, but 4 dims have 2 planes; one is wanted for each");
  for (const std::string part : {"", "x", "0", "-1", "nan", "inf", "1e999"}) {
    EXPECT_EQ(complaint("rope", {{"stretch", "longrope"}, {"short-factors", "2/" + part}}),
              formatted("[rope] short-factors = '2/{}' has '{}' where a number above 0 is to stand; write 1/1.5/2, one "
                        "for each plane",
                        part, part));
  }
  EXPECT_EQ(complaint("rope", {{"stretch", "longrope"}, {"trained-length", 1}}),
            "[rope] trained-length = 1 is too short for stretch = longrope, which divides by its logarithm");
  EXPECT_EQ(complaint("rope", {{"stretch", "longrope"}, {"short-factors", "1/1.5"}, {"long-factors", "2/4e1"}}), "");
  EXPECT_EQ(complaint("rope", {{"stretch", "yarn"}, {"factor", 8.0}, {"trained-length", 64}}), "");
}

TEST(EncodingTraits, FollowFromTheHooks) {
  EXPECT_TRUE(entry_of<Even>("").traits.replaces_softmax && entry_of<Whole>("").traits.mixes);
  EXPECT_TRUE(entry_of<Turning>("").traits.rotates && find_encoding("absolute").traits.embeds);
  const EncodingTraits none = entry_of<Doubling>("").traits;
  EXPECT_FALSE(none.replaces_softmax || none.mixes || none.rotates || none.embeds);
}

TEST(EncodingSum, ActsThroughEveryHook) {
  const EncodingEntry even = entry_of<Even>("even"), doubling = entry_of<Doubling>("doubling"),
                      whole = entry_of<Whole>("whole"), dense = entry_of<DenseBias>("dense"),
                      other = entry_of<DenseBias>("other");
  const Tensor v = normal_tensor("v", {1, 2, 5, 4});
  expect_near(output_of({&whole}), multiply(v, 2.0));
  const Tensor means = output_of({&even});
  expect_near(select(means, 2, 4), mean(v, {2}));
  expect_near(output_of({&even, &doubling, &dense}), multiply(means, 2.0));

  const Tensor q = normal_tensor("q", v.shape()), k = normal_tensor("k", v.shape());
  const Tensor s = matmul(q, transpose(k, -1, -2), 0.5);
  const Tensor bias = normal_tensor("bias", {1, 1, 5, 5});
  expect_near(output_of({&dense, &other}), matmul(causal_softmax(s + bias + bias), v));
}

TEST(Score, RefusesAToeplitzBiasThatIsTooShort) {
  const EncodingEntry entry = entry_of<ShortToeplitz>("short");
  EXPECT_EQ(error_of([&] { output_of({&entry}); }),
            "[attention] a toeplitz bias of 4 distances does not cover 5 tokens");
}

TEST(Score, NamesTheAxesOfABias) {
  const EncodingEntry flat = entry_of<FlatToeplitz>("flat");
  EXPECT_EQ(error_of([&] { output_of({&flat}); }), "[score] the bias of a Toeplitz must be [H, distances], got [2]");
}

// A rotation may widen q and k. No other part can then use the rotated q.
TEST(EncodingSum, RefusesTheRotatedQueryOfAWiderRotation) {
  const EncodingEntry widening = entry_of<Widening>("widening"), reads = entry_of<ReadsTheRotatedQuery>("reads");
  EXPECT_EQ(error_of([&] { output_of({&widening}); }), "");
  EXPECT_EQ(error_of([&] { output_of({&reads}); }), "");
  EXPECT_EQ(error_of([&] {
              output_of({&widening, &reads});
            }),
            "[encoding] a rotation here changes the width of q from 4 to 8, so no other part can use the rotated q");
}

}  // namespace encoding_choice_test
}  // namespace tally
