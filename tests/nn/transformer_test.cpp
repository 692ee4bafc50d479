// The transformer as a whole: names, sizes, the order of norms and dropout, sameness for any number of threads, errors.
#include "nn/transformer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/profile.hpp"
#include "autograd/score.hpp"
#include "core/cpu/parallel.hpp"
#include "nn/layers/dropout.hpp"
#include "tests/error_of.hpp"

namespace tally::transformer_test {

constexpr std::int64_t vocabulary = 5;

ModelOptions small_model() {
  ModelOptions options;
  options.layers = 2;
  options.width = 8;
  options.heads = 2;
  options.init = "fan-in";
  return options;
}

Tensor some_tokens(std::int64_t batch, std::int64_t length) {
  Rng rng({3, stream_of("tokens"), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < batch * length; ++n) ids.push_back(static_cast<std::int32_t>(rng.below(vocabulary)));
  return Tensor::from(ids, {batch, length});
}

std::vector<std::string> names_and_shapes(const Module& module) {
  std::vector<std::string> lines;
  for (const auto& [path, parameter] : module.parameters()) lines.push_back(path + " " + to_text(parameter.shape()));
  return lines;
}

using testing::error_of;

TEST(Transformer, NamesParametersAsCheckpointsDo) {
  ModelOptions options = small_model();
  options.layers = 1;
  EncodingChoice encoding = EncodingChoice::parse("absolute+cope");
  encoding.set_option("p-max", "3");
  encoding.set_option("gates", "sep-keys");
  const Transformer model(options, encoding, vocabulary, 6, 1);
  EXPECT_EQ(names_and_shapes(model), (std::vector<std::string>{"embedding.weight [5, 8]",
                                                               "position.absolute.table [6, 8]",
                                                               "blocks.0.attention_norm.weight [8]",
                                                               "blocks.0.attention_norm.bias [8]",
                                                               "blocks.0.attention.query.weight [8, 8]",
                                                               "blocks.0.attention.query.bias [8]",
                                                               "blocks.0.attention.key.weight [8, 8]",
                                                               "blocks.0.attention.key.bias [8]",
                                                               "blocks.0.attention.value.weight [8, 8]",
                                                               "blocks.0.attention.value.bias [8]",
                                                               "blocks.0.attention.output.weight [8, 8]",
                                                               "blocks.0.attention.output.bias [8]",
                                                               "blocks.0.position.cope.table [4, 4]",
                                                               "blocks.0.position.cope.gate.weight [8, 8]",
                                                               "blocks.0.position.cope.gate.bias [8]",
                                                               "blocks.0.mlp_norm.weight [8]",
                                                               "blocks.0.mlp_norm.bias [8]",
                                                               "blocks.0.mlp.up.weight [32, 8]",
                                                               "blocks.0.mlp.up.bias [32]",
                                                               "blocks.0.mlp.down.weight [8, 32]",
                                                               "blocks.0.mlp.down.bias [8]",
                                                               "norm.weight [8]",
                                                               "norm.bias [8]",
                                                               "head.weight [5, 8]"}));
}

TEST(Transformer, LeavesOutWhatIsNotThere) {
  ModelOptions options = small_model();
  options.layers = 1;
  options.norm = "rms";
  options.tied = true;
  options.final_norm = false;
  options.activation = "swiglu";
  options.hidden = 12;
  const Transformer model(options, EncodingChoice::parse("none"), vocabulary, 6, 1);
  for (const auto& [path, parameter] : model.parameters()) {
    EXPECT_FALSE(path.starts_with("norm.") || path.starts_with("head.") || path.ends_with("norm.bias")) << path;
  }
  // embedding, 2 norms, 4 projections, up gate down
  EXPECT_EQ(model.parameter_count(), 40 + 16 + 4 * (64 + 8) + 2 * (96 + 12) + (96 + 8));
}

TEST(Transformer, HasTheParametersOfTheFlipFlopModel) {
  ModelOptions options;  // 4 layers, width 256, 4 heads, GPT-2 style
  const std::int64_t D = 256, block = 12 * D * D + 13 * D;
  const std::int64_t rest = 2 * D + 2 * 5 * D;  // final norm, embedding and head
  const auto count = [&](const std::string& encoding) {
    return Transformer(options, EncodingChoice::parse(encoding), 5, 512, 1).parameter_count();
  };
  EXPECT_EQ(count("none"), 4 * block + rest);
  EXPECT_EQ(count("absolute"), 4 * block + rest + 512 * D);
  EXPECT_EQ(count("cope"), 4 * block + rest + 4 * 65 * 64);
  EXPECT_EQ(count("relative"), 4 * block + rest + 4 * 512 * 64);
  EXPECT_EQ(Transformer(options, EncodingChoice::parse("cope"), 5, 512, 1).matrix_parameter_count(),
            4 * 12 * D * D + 5 * D);
  options.tied = true;
  EXPECT_EQ(count("none"), 4 * block + rest - 5 * D);
  EXPECT_EQ(Transformer(options, EncodingChoice::parse("none"), 5, 512, 1).matrix_parameter_count(),
            4 * 12 * D * D + 5 * D);
}

// One token attends only to itself, so a block is a chain of projections that can be written out.
TEST(Transformer, PutsNormsWhereAsked) {
  for (const std::string order : {"pre", "parallel", "post"}) {
    for (const std::string norm : {"layer", "rms"}) {
      for (const bool tied : {false, true}) {
        SCOPED_TRACE(formatted("{} {}{}", order, norm, tied ? " tied" : ""));
        ModelOptions options = small_model();
        options.layers = 1;
        options.norm_place = order == "post" ? "post" : "pre";
        options.residual = order == "parallel" ? "parallel" : "sequential";
        options.head_width = tied ? 3 : 0;  // of two heads, whose width together is not the model's
        options.norm = norm;
        options.tied = tied;
        Transformer model(options, EncodingChoice::parse("none"), vocabulary, 6, 1, DType::f64);
        std::map<std::string, Tensor> p;
        for (auto& [path, parameter] : model.parameters()) {
          const Tensor noise =
              Initializer(9, StartValues::gpt2, DType::f64).make(path, parameter.shape(), Fill::normal(0.1));
          parameter.copy_from(add(parameter.detach(), noise));
          p[path] = parameter.detach();
        }
        const auto project = [&](const std::string& name, const Tensor& x) {
          return linear(x, p.at(name + ".weight"), p.at(name + ".bias"));
        };
        const auto normed = [&](const std::string& name, const Tensor& x) {
          return norm == "rms" ? rms_norm(x, p.at(name + ".weight"))
                               : layer_norm(x, p.at(name + ".weight"), p.at(name + ".bias"));
        };
        const auto attention = [&](const Tensor& x) {
          return project("blocks.0.attention.output", project("blocks.0.attention.value", x));
        };
        const auto mlp = [&](const Tensor& x) {
          return project("blocks.0.mlp.down", gelu(project("blocks.0.mlp.up", x)));
        };
        const Tensor tokens = Tensor::from(std::vector<std::int32_t>{3, 1}, {2, 1});
        Tensor x = embedding(p.at("embedding.weight"), tokens);
        if (order == "parallel") {
          x = x + attention(normed("blocks.0.attention_norm", x)) + mlp(normed("blocks.0.mlp_norm", x));
        } else if (order == "pre") {
          x = x + attention(normed("blocks.0.attention_norm", x));
          x = x + mlp(normed("blocks.0.mlp_norm", x));
        } else {
          x = normed("blocks.0.attention_norm", x + attention(x));
          x = normed("blocks.0.mlp_norm", x + mlp(x));
        }
        const Tensor expected = linear(normed("norm", x), p.at(tied ? "embedding.weight" : "head.weight"));
        const std::vector<double> a = expected.to_vector<double>(), b = model.forward(tokens).to_vector<double>();
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t n = 0; n < a.size(); ++n) EXPECT_NEAR(a[n], b[n], 1e-12);
      }
    }
  }
}

TEST(Transformer, DropsOnlyWhileTrainingAndAnewEachStep) {
  ModelOptions options = small_model();
  options.dropout = 0.3;
  Transformer model(options, EncodingChoice::parse("rope"), vocabulary, 8, 1);
  options.dropout = 0;
  Transformer without(options, EncodingChoice::parse("rope"), vocabulary, 8, 1);
  const Tensor tokens = some_tokens(2, 8);
  const auto logits = [&](bool training, std::uint64_t seed, std::uint32_t step) {
    return model.forward(tokens, {.training = training, .step = {.seed = seed, .number = step}}).to_vector<float>();
  };
  EXPECT_EQ(logits(false, 1, 1), without.forward(tokens).to_vector<float>());
  EXPECT_NE(logits(true, 1, 1), logits(false, 1, 1));
  EXPECT_EQ(logits(true, 1, 1), logits(true, 1, 1));
  EXPECT_NE(logits(true, 1, 1), logits(true, 1, 2));
  EXPECT_NE(logits(true, 1, 1), logits(true, 2, 1));
}

TEST(Transformer, DropsAtEveryPlaceWithAMaskOfItsOwn) {
  ModelOptions options = small_model();
  options.dropout = 0.3;
  Transformer model(options, EncodingChoice::parse("none"), vocabulary, 8, 1);
  start_profile();
  model.forward(some_tokens(2, 8), {.training = true});
  const std::vector<ProfileEvent> events = stop_profile();
  // The embedding, and in each layer the hidden layer and both sublayer outputs; tiled attention drops its weights
  // itself.
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const auto& event) { return event.name == "dropout"; }),
            1 + 2 * 3);

  const Initializer start(1, StartValues::gpt2);
  const Tensor ones = Tensor::full({64}, 1);
  const auto mask = [&](const Initializer& at, const char* name) {
    return Dropout(at, name, 0.5)(ones, {.training = true}).to_vector<float>();
  };
  EXPECT_NE(mask(start.at("blocks.0"), "mlp"), mask(start.at("blocks.0"), "attention"));
  EXPECT_NE(mask(start.at("blocks.0"), "mlp"), mask(start.at("blocks.1"), "mlp"));
  EXPECT_EQ(mask(start.at("blocks.0"), "mlp"),
            dropout(ones, 0.5, {0, stream_of("dropout/blocks.0.mlp"), 0}).to_vector<float>());
}

TEST(Transformer, GivesTheSameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  ModelOptions options = small_model();
  options.width = 48;
  options.dropout = 0.1;
  const Tensor tokens = some_tokens(3, 70);
  std::vector<std::string> names{"cope+rope", "kerple+fox-pro", "0:cope@0,alibi@1,1:stick-breaking"};
  for (const EncodingEntry* entry : encoding_registry()) names.push_back(entry->name);
  for (const std::string& name : names) {
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3}) {
      set_thread_count(threads);
      Transformer model(options, EncodingChoice::parse(name), vocabulary, 70, 1);
      const Tensor logits = model.forward(tokens, {.training = true, .step = {.seed = 1, .number = 3}});
      backward(cross_entropy(logits, tokens, Tensor::full(tokens.shape(), 1, DType::boolean)));
      std::vector<float> all = logits.to_vector<float>();
      for (const auto& [path, parameter] : model.parameters()) {
        if (!gradient(parameter).defined()) continue;
        const std::vector<float> own = gradient(parameter).to_vector<float>();
        all.insert(all.end(), own.begin(), own.end());
      }
      results.push_back(std::move(all));
    }
    EXPECT_EQ(results[0], results[1]) << name;
    EXPECT_EQ(results[0], results[2]) << name;
  }
  set_thread_count(before);
}

TEST(Transformer, HasLinearLayersWithoutBiases) {
  ModelOptions options = small_model();
  options.bias = false;
  options.norm = "rms";
  options.activation = "swiglu";
  EncodingChoice choice = EncodingChoice::parse("cope");
  choice.set_option("gates", "sep-keys");
  Transformer model(options, choice, vocabulary, 6, 1);
  for (const auto& [path, parameter] : model.parameters()) EXPECT_FALSE(path.ends_with("bias")) << path;
  EXPECT_EQ(model.forward(some_tokens(1, 6)).numel(), 6 * vocabulary);
}

TEST(Transformer, RefusesSizesThatDoNotFit) {
  const auto error = [](auto&& change) {
    ModelOptions options = small_model();
    change(options);
    return error_of([&] { Transformer(options, EncodingChoice::parse("none"), vocabulary, 6, 1); });
  };
  EXPECT_EQ(error([](ModelOptions& o) { o.heads = 3; }),
            "[model] width 8 is not divisible by 3 heads, and no head-width is given");
  EXPECT_EQ(error([](ModelOptions& o) { o.heads = 3, o.head_width = 5; }), "");
  EXPECT_EQ(error([](ModelOptions& o) { o.residual = "parallel", o.norm_place = "post"; }),
            "[model] residual = parallel has no effect with norm-place = post; it is for norm-place = pre");
  EXPECT_NE(error([](ModelOptions& o) { o.norm_eps = -1; }).find("[model] norm-eps must be"), std::string::npos);
  EXPECT_NE(error([](ModelOptions& o) { o.heads = 0; }).find("[model] heads must be"), std::string::npos);
  EXPECT_NE(error([](ModelOptions& o) { o.layers = 1'000'000'000; }).find("[model] layers must be"), std::string::npos);
  EXPECT_NE(error([](ModelOptions& o) { o.norm = "batch"; }).find("[model] norm must be"), std::string::npos);
  EXPECT_NE(error([](ModelOptions& o) { o.dropout = 1; }).find("[model] dropout must be"), std::string::npos);
  EXPECT_NE(error([](ModelOptions& o) { o.dropout = std::nan(""); }).find("[model] dropout must be"),
            std::string::npos);
  EXPECT_NE(error_of([] { Transformer(small_model(), EncodingChoice::parse("none"), 0, 6, 1); }).find("vocabulary"),
            std::string::npos);
  ModelOptions odd = small_model();
  odd.width = 6;
  EXPECT_NE(error_of([&] { Transformer(odd, EncodingChoice::parse("rope"), 5, 6, 1); }).find("[rope]"),
            std::string::npos);
}

struct Broken final : Encoding {
  explicit Broken(const EncodingSetup& setup) : broken_(setup.layer == 1) {}
  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    check(!broken_, "broken", "as it should be");
    return output;
  }
  bool broken_;
};

TEST(Transformer, ErrorsNameThePlaceTheyCameFrom) {
  const EncodingEntry entry = encoding_entry<NoOptions, Broken>("broken", "", "", "");
  EncodingChoice choice;
  choice.parts.push_back({&entry, entry.make_options()});
  Transformer model(small_model(), choice, vocabulary, 6, 1);
  EXPECT_EQ(error_of([&] { model.forward(some_tokens(1, 3)); }), "in blocks.1.attention: [broken] as it should be");

  Transformer fixed(small_model(), EncodingChoice::parse("absolute"), vocabulary, 6, 1);
  const Tensor unknown = Tensor::from(std::vector<std::int32_t>{1, 7}, {1, 2});
  EXPECT_EQ(error_of([&] { fixed.forward(unknown); }).find("in embedding: "), 0u);
  EXPECT_EQ(error_of([&] { fixed.forward(some_tokens(1, 7)); }),
            "[absolute] the table has 6 positions, the sequence 7 tokens");
  EXPECT_NE(error_of([&] { fixed.forward(Tensor::from(std::vector<std::int32_t>{1}, {1})); }).find("[batch, length]"),
            std::string::npos);
}

}  // namespace tally::transformer_test
