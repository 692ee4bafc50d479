// Encodings by layer and by groups of heads: their names, results and parameters.
#include <gtest/gtest.h>

#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::combination_test {

using testing::normal_tensor;

constexpr std::int64_t vocabulary = 7;

using testing::error_of;

std::string written(const std::string& text) { return EncodingChoice::parse(text).text(); }

// The error of a model of 4 layers with 4 heads.
std::string complaint(const std::string& text) {
  return error_of([&] { EncodingChoice::parse(text).check_covers(4, 4, 4); });
}

ModelOptions model_of(std::int64_t layers, std::int64_t heads) {
  ModelOptions options;
  options.layers = layers;
  options.heads = heads;
  options.width = 4 * heads;
  options.init = "fan-in";
  return options;
}

Tensor some_tokens(std::int64_t batch, std::int64_t length) {
  Rng rng({3, stream_of("tokens"), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < batch * length; ++n) ids.push_back(static_cast<std::int32_t>(rng.below(vocabulary)));
  return Tensor::from(ids, {batch, length});
}

// A model of 2 layers with 4 heads. Its parameters differ from their initial values by numbers that depend on their
// paths, so parameters with the same name are equal in all models.
std::unique_ptr<Transformer> make_model(const std::string& text,
                                        const std::vector<std::pair<std::string, std::string>>& settings = {}) {
  EncodingChoice choice = EncodingChoice::parse(text);
  for (const auto& [name, value] : settings) choice.set_option(name, value);
  auto model = std::make_unique<Transformer>(model_of(2, 4), choice, vocabulary, 12, 1, DType::f64);
  for (auto& [path, parameter] : model->parameters()) {
    parameter.copy_from(add(parameter.detach(), normal_tensor(path, parameter.shape(), 0.3)));
  }
  return model;
}

std::vector<double> logits_of(Transformer& model) {
  const NoGrad only_values;
  return model.forward(some_tokens(2, 12)).to_vector<double>();
}

// Paths of the encodings' parameters.
std::vector<std::string> positions_of(const Transformer& model) {
  std::vector<std::string> paths;
  for (const auto& [path, parameter] : model.parameters()) {
    if (path.find("position.") != std::string::npos) paths.push_back(formatted("{} {}", path, parameter.shape()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Combination, IsWrittenInOneWay) {
  EXPECT_EQ(written("rope+alibi+cope"), "alibi+cope+rope");
  EXPECT_EQ(written("0:none,1-3:rope+cope"), "0:none,1-3:cope+rope");
  EXPECT_EQ(written("1-3:cope,0:none"), "0:none,1-3:cope");
  EXPECT_EQ(written("alibi@2-3,cope@0-1"), "cope@0-1,alibi@2-3");
  EXPECT_EQ(written("0:rope,1-3:cope@0-1,alibi@2-3"), "0:rope,1-3:cope@0-1,alibi@2-3");
  EXPECT_EQ(written("1-3:cope@0-1,1-3:alibi@2-2,rope@3,0:none"), "0:none,1-3:cope@0-1,alibi@2,rope@3");
  for (const std::string text : {"0:none,1-3:cope+rope", "cope@0-1,alibi@2-3", "0:rope,1-3:cope@0-1,alibi@2-3"}) {
    EXPECT_EQ(EncodingChoice::parse(written(text)).text(), text);
    EXPECT_EQ(EncodingChoice::parse(text).clone().text(), text);
  }
}

TEST(Combination, SaysWhatIsWrongWithTheText) {
  const std::string lacks =
      "' lacks a name; write one encoding, a sum (cope+rope), or what acts where (0:none,1-3:cope; cope@0-1,alibi@2-3)";
  for (const std::string text : {"", "cope++rope", "0:none,", "0:,1:cope", "@0-1,cope@2-3", ",cope", "0:cope+"}) {
    EXPECT_EQ(complaint(text), formatted("[encoding] '{}{}", text, lacks));
  }
  EXPECT_EQ(complaint("a:none"), "[encoding] 'a' in 'a:none' names no layers; write 2 or 1-3");
  EXPECT_EQ(complaint("cope@x"), "[encoding] 'x' in 'cope@x' names no heads; write 2 or 1-3");
  for (const std::string range : {"", "-1", "1-", "1-2-3", "0x1", "1.5", "+1", " 1", "99999999999999999999"}) {
    EXPECT_EQ(complaint(formatted("{}:cope", range)),
              formatted("[encoding] '{}' in '{}:cope' names no layers; write 2 or 1-3", range, range));
  }
  EXPECT_EQ(complaint("3-1:cope"), "[encoding] '3-1' in '3-1:cope' names no layers; write 2 or 1-3");
  EXPECT_EQ(complaint("0:cope,1-3:rope+rope@0"), "[encoding] 'rope+rope' names rope twice");
}

TEST(Combination, NamesEveryHeadOfEveryLayerOnce) {
  for (const std::string text :
       {"cope", "0:none,1-3:cope", "cope@0-1,alibi@2-3", "0:rope,1-3:cope@0-1,alibi@2-3",
        "0-1:cope@0-1,0:rope@2-3,1:alibi@2-3,2-3:none", "cope@0-1,1:alibi@2-3,2-3:rope@2-3,0:none@2-3"}) {
    EXPECT_EQ(complaint(text), "") << text;
  }
  EXPECT_EQ(complaint("0:none,1-2:cope"),
            "[encoding] '0:none,1-2:cope' names nothing for layer 3; write none where there is none");
  EXPECT_EQ(complaint("0:cope@0-1,alibi@3,1-3:cope"),
            "[encoding] '0:cope@0-1,alibi@3,1-3:cope' names nothing for head 2 of layer 0; write none where there is "
            "none");
  EXPECT_EQ(complaint("cope@0-1"),
            "[encoding] 'cope@0-1' names nothing for heads 2-3 of layer 0; write none where there is none");
  EXPECT_EQ(complaint("0-2:cope,2-3:alibi"), "[encoding] '0-2:cope,2-3:alibi' names head 0 of layer 2 twice");
  EXPECT_EQ(complaint("cope@0-2,alibi@2-3"), "[encoding] 'cope@0-2,alibi@2-3' names head 2 of layer 0 twice");
  EXPECT_EQ(complaint("0:cope,alibi,1-3:none"), "[encoding] '0:cope,alibi,1-3:none' names head 0 of layer 0 twice");
  EXPECT_EQ(complaint("0:none,1-7:cope"),
            "[encoding] '0:none,1-7:cope' names layer 7, but the model has 4 layers (from 0)");
  EXPECT_EQ(complaint("cope@0-1,alibi@2-4"),
            "[encoding] 'cope@0-1,alibi@2-4' names head 4, but the model has 4 heads (from 0)");
  EXPECT_EQ(error_of([] { EncodingChoice::parse("1:cope").check_covers(1, 1, 1); }),
            "[encoding] '1:cope' names layer 1, but the model has 1 layer (from 0)");
}

TEST(Combination, EmbeddingsAreChangedOnceBeforeLayerZero) {
  EXPECT_EQ(error_of([] { make_model("0:none,1:absolute"); }),
            "[encoding] absolute acts on the embeddings, before layer 0 and for all heads: name it for all of layer 0 "
            "(0:absolute,...)");
  EXPECT_EQ(error_of([] { make_model("absolute@0-1,rope@2-3"); }),
            "[encoding] absolute acts on the embeddings, before layer 0 and for all heads: name it for all of layer 0 "
            "(0:absolute,...)");
  EXPECT_EQ(error_of([] { make_model("0:sinusoidal,1:sinusoidal@0-1,rope@2-3"); }),
            "[encoding] sinusoidal acts on the embeddings, before layer 0 and for all heads: name it for all of layer "
            "0 (0:sinusoidal,...)");
  const std::vector<double> everywhere = logits_of(*make_model("absolute"));
  EXPECT_EQ(logits_of(*make_model("0:absolute,1:none")), everywhere);
  EXPECT_EQ(logits_of(*make_model("0:absolute,1:absolute")), everywhere);
  EXPECT_NE(logits_of(*make_model("none")), everywhere);
}

TEST(Combination, RefusalsNameTheGroup) {
  EXPECT_EQ(error_of([] { make_model("0:hard+stick-breaking,1:none"); }),
            "[encoding] 0:hard+stick-breaking: two parts each take the place of the softmax; keep one "
            "of them");
}

// A rotation that makes q and k wider than a head, next to vectors that they no longer fit.
TEST(Combination, RefusesVectorsThatAreNarrowerThanTheRotatedQuery) {
  EXPECT_EQ(error_of([] {
              make_model("cope+pope", {{"rotated-query", "true"}});
            }),
            "[encoding] cope+pope: pope makes the rotated q and k wider than a head, but cope with rotated-query needs "
            "them as wide as a head; leave out rotated-query");
  EXPECT_EQ(error_of([] { make_model("0:none,1:path+pope"); }),
            "[encoding] path+pope: pope makes the rotated q and k wider than a head, but path needs them as wide as a "
            "head; leave out one of the two");
  EXPECT_EQ(error_of([] { make_model("0:pope,1:path"); }), "");
  EXPECT_EQ(error_of([] { make_model("cope+pope"); }), "");
}

TEST(Combination, ParametersAreThoseOfLayersAndHeadsThatHaveThem) {
  const std::vector<std::pair<std::string, std::string>> small{{"cope.p-max", "3"}};
  EXPECT_EQ(positions_of(*make_model("0:none,1:cope", small)),
            (std::vector<std::string>{"blocks.1.position.cope.table [4, 4]"}));
  EXPECT_EQ(positions_of(*make_model("0:alibi@0-2,cope@3,1:rope", {{"learned", "true"}, {"p-max", "3"}})),
            (std::vector<std::string>{"blocks.0.position.alibi.slopes [3]", "blocks.0.position.cope.table [4, 4]"}));
  EXPECT_EQ(
      positions_of(*make_model("0:cope+rope@0,cope@1-3,1:cope@0-1,rope@2-3", small)),
      (std::vector<std::string>{"blocks.0.position.cope@0.table [4, 4]", "blocks.0.position.cope@1-3.table [4, 4]",
                                "blocks.1.position.cope.table [4, 4]"}));
  EXPECT_EQ(positions_of(*make_model("cope@0-1,cope+rope@2-3", {{"p-max", "3"}, {"share", "layers"}})),
            (std::vector<std::string>{"position.cope.table [4, 4]"}));
  EXPECT_EQ(
      positions_of(*make_model("0:cope@0-2,none@3,1:none", {{"p-max", "3"}, {"gates", "sep-keys"}})),
      (std::vector<std::string>{"blocks.0.position.cope.gate.bias [12]", "blocks.0.position.cope.gate.weight [12, 16]",
                                "blocks.0.position.cope.table [4, 4]"}));
}

// Only head 1 has a table. The other heads give the results of a model without tables.
TEST(Combination, AGroupActsOnItsHeadsAlone) {
  const Initializer start(4, StartValues::fan_in, DType::f64);
  const std::int64_t heads = 3, width = 12;
  const Shape shape{1, heads, 6, 4};
  const auto attend = [&](const std::string& text) {
    EncodingSetup setup = EncodingSetup::of(model_of(1, heads), 6, start);
    setup.make_parameter = [](std::string_view name, const Shape& of, const Fill&, Scope) {
      return normal_tensor(name, of);
    };
    const Attention attention(start, model_of(1, heads));
    return attention.attend(normal_tensor("x", {1, 6, width}), normal_tensor("q", shape), normal_tensor("k", shape),
                            normal_tensor("v", shape), EncodingChoice::parse(text).make(setup), {});
  };
  const Tensor mixed = attend("none@0,cope@1,rope@2");
  for (const auto& [head, whole] : {std::pair{0, "none"}, std::pair{1, "cope"}, std::pair{2, "rope"}}) {
    const std::vector<double> expected = select(attend(whole), 1, head).to_vector<double>();
    const std::vector<double> found = select(mixed, 1, head).to_vector<double>();
    for (std::size_t n = 0; n < expected.size(); ++n) ASSERT_NEAR(found[n], expected[n], 1e-12) << whole;
  }
}

TEST(Combination, GroupsDropWeightsWithMasksOfTheirOwn) {
  const Initializer start(4, StartValues::fan_in, DType::f64);
  EncodingSetup setup;
  setup.heads = setup.key_heads = 2;
  const LayerEncoding groups = EncodingChoice::parse("none@0,none@1").make(setup);
  const Tensor q = broadcast_to(normal_tensor("q", {1, 1, 16, 4}), {1, 2, 16, 4});
  ModelOptions model = model_of(1, 2);
  model.dropout = 0.5;
  const Attention attention(start, model);
  const auto head = [&](int n, bool training) {
    const Tensor o = attention.attend(normal_tensor("x", {1, 16, 8}), q, q, q, groups, {.training = training});
    return select(o, 1, n).to_vector<double>();
  };
  EXPECT_EQ(head(0, false), head(1, false));
  EXPECT_NE(head(0, true), head(1, true));
}

TEST(Combination, TracesHoldAllHeads) {
  const auto model = make_model("0:rope,1:alibi@0,cope@1-3");
  std::vector<AttentionTrace> trace;
  const NoGrad only_values;
  model->forward(some_tokens(2, 5), {.trace = &trace});
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_FALSE(trace[0].gates.defined());
  EXPECT_EQ(trace[1].weights.shape(), (Shape{2, 4, 5, 5}));
  EXPECT_EQ(trace[1].gates.shape(), trace[1].weights.shape());
  for (const double total : sum(trace[1].weights, {3}).to_vector<double>()) EXPECT_NEAR(total, 1, 1e-14);
  EXPECT_EQ(sum(select(trace[1].positions, 1, 0)).item(), 0);
  EXPECT_GT(select(trace[1].gates, 1, 3)
                .detached_select(0, 0)
                .detached_select(0, 4)
                .detached_select(0, 4)
                .to(DType::f64)
                .item(),
            0);
}

struct SharedByHeads final : Encoding {
  explicit SharedByHeads(const EncodingSetup& setup) {
    setup.parameter("strength", {setup.heads}, Fill::constant(0), Scope::model);
  }
};

TEST(Combination, RefusesToShareWhatHasAnotherShape) {
  const EncodingEntry entry = encoding_entry<NoOptions, SharedByHeads>("shared", "", "", "");
  EncodingChoice choice = EncodingChoice::parse("0:none,1:none@0,rope@1-3");
  for (EncodingChoice::Part& part : choice.parts) {
    if (part.entry->name == "none") part.entry = &entry;
  }
  for (EncodingChoice::Assignment& assignment : choice.assignments) {
    if (assignment.sum[0]->name == "none") assignment.sum[0] = &entry;
  }
  EXPECT_EQ(error_of([&] { Transformer(model_of(2, 4), choice, vocabulary, 12, 1); }),
            "[model] position.shared.strength is shared by all layers, but is [4] before layer 1 and [1] there");
}

}  // namespace tally::combination_test
