// Norms of queries and keys (nn/attention/attention.hpp) against attention layers of another library, and together with
// every encoding.
#include <gtest/gtest.h>

#include <map>

#include "core/io/safetensors.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/refusals.hpp"
#include "tests/nn/small_model.hpp"

namespace tally::qk_norm_test {

using testing::EncodingCase;
using testing::normal_tensor;
using testing::some_tokens;

constexpr std::int64_t length = 9;

class QkNorms : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(QkNorms);

void expect_near(const Tensor& found, const Tensor& expected, double tolerance, const std::string& name) {
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape())) << name;
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], tolerance) << name << " " << n;
}

// The files are described in tests/reference/foreign/make_qk_norm.py.
TEST_P(QkNorms, AreThoseOfQwenOlmoAndPhi) {
  for (const std::string name : {"qwen3", "olmo2", "phi"}) {
    const auto file = SafetensorsFile::open(
        formatted("{}{}.safetensors", TALLY_SOURCE_DIR "/tests/reference/foreign/qk-norm-", name));
    const std::map<std::string, std::string> words(file.metadata().begin(), file.metadata().end());
    const auto number = [&](const char* key) { return std::stoll(words.at(key)); };
    const auto read = [&](const std::string& tensor) { return file.read(tensor).to(default_device()); };
    const Tensor x = read("x");
    ModelOptions model;
    model.width = x.size(2), model.heads = number("heads");
    model.kv_heads = number("key-heads"), model.head_width = number("head-width");
    model.qk_norm = words.at("over"), model.norm = words.at("norm"), model.norm_eps = std::stod(words.at("eps"));
    const Initializer start(1, StartValues::gpt2, DType::f64, default_device());
    EncodingChoice rope = EncodingChoice::parse("rope");
    rope.set_option("layout", "half");
    rope.set_option("base", words.at("base"));
    rope.set_option("rotary-dims", words.at("rotary-dims"));
    model.bias = name == "phi";
    for (const char* const form : {"tiled", "composed"}) {
      SCOPED_TRACE(formatted("{} {}", name, form));
      model.attention = form;
      const Attention attention(start, model);
      NamedTensors parameters = attention.parameters();
      EXPECT_EQ(2 * parameters.size() + 4, file.entries().size());
      for (auto& [path, parameter] : parameters) parameter.copy_from(read(path));
      Tensor given = x.clone();
      set_requires_grad(given);
      const Tensor y = attention.forward(given, rope.make(EncodingSetup::of(model, x.size(1), start)), {});
      backward(y, read("d_y"));
      expect_near(y, read("y"), 1e-12, "y");
      expect_near(gradient(given), read("d_x"), 1e-11, "d_x");
      for (const auto& [path, parameter] : parameters) {
        expect_near(gradient(parameter), read("d_" + path), 1e-11, path);
      }
    }
  }
}

struct Norms {
  const char *over, *kind;
  std::int64_t key_heads;
};

std::unique_ptr<Transformer> make_model(const EncodingChoice& choice, const Norms& norms,
                                        const std::string& attention) {
  ModelOptions options;
  options.layers = 2, options.width = 8, options.heads = 4, options.head_width = 4;
  options.kv_heads = choice.parts[0].entry->traits.keys_follow_queries ? 0 : norms.key_heads;
  options.init = "fan-in";
  options.attention = attention;
  options.qk_norm = norms.over;
  options.norm = norms.kind;
  auto model =
      std::make_unique<Transformer>(options, choice, testing::vocabulary, length, 1, DType::f64, default_device());
  for (auto& [path, parameter] : model->parameters()) {
    parameter.copy_from(add(parameter.detach(), normal_tensor(path, parameter.shape(), 0.3)));
  }
  model->project_parameters();
  return model;
}

// The choices of the test below: each encoding, combinations, windows, layers and groups of heads.
std::vector<EncodingChoice> choices() {
  std::vector<EncodingChoice> all;
  for (const EncodingEntry* entry : encoding_registry()) all.push_back(EncodingChoice::parse(entry->name));
  for (const char* text : {"cope+rope", "cope+fox+rope", "alibi+sink", "rope[window=3,first=1]", "fox-pro+rope",
                           "0:none,1:cope", "cope@0-1,alibi@2-3"}) {
    all.push_back(EncodingChoice::parse(text));
  }
  return all;
}

TEST_P(QkNorms, GoTogetherWithEveryEncoding) {
  constexpr Norms some[]{{"head", "rms", 2}, {"full", "layer", 0}, {"full", "rms", 2}, {"head", "layer", 1}};
  const Tensor tokens = some_tokens(length);
  // Only a part of them on CUDA kernels, whose launches are slow.
  const std::size_t one_of = GetParam() == Device{} ? 1 : 9;
  const std::vector<EncodingChoice> all = choices();
  for (std::size_t n = 0; n < all.size(); n += one_of) {
    const EncodingChoice& choice = all[n];
    const Norms& norms = some[n % std::size(some)];
    SCOPED_TRACE(formatted("{} {} {}", choice.text(), norms.over, norms.kind));
    const auto model = make_model(choice, norms, "tiled"), composed = make_model(choice, norms, "composed");
    const NoGrad only_values;
    const Tensor whole = model->forward(tokens);
    expect_near(composed->forward(tokens), whole, 1e-11, "materialised");
    if (model->rows_by_end() > 0) continue;
    GenerationState state;
    std::vector<Tensor> rows;
    for (std::int64_t t = 0; t < length; ++t) rows.push_back(model->step(slice(tokens, 1, t, t + 1), state));
    expect_near(concat(rows, 1), whole, 1e-10, "token by token");
  }
}

TEST(QkNorm, HasAWeightForAHeadOrForAll) {
  const auto shapes = [](const Norms& norms) {
    std::string text;
    for (const auto& [path, parameter] : make_model(EncodingChoice::parse("none"), norms, "tiled")->parameters()) {
      const std::size_t at = path.find("0.attention.");
      if (at == std::string::npos || path.find("_norm.") == std::string::npos) continue;
      text += formatted("{} {} ", path.substr(at + 12), parameter.shape());
    }
    return text;
  };
  EXPECT_EQ(shapes({"none", "rms", 2}), "");
  EXPECT_EQ(shapes({"head", "rms", 2}), "query_norm.weight [4] key_norm.weight [4] ");
  EXPECT_EQ(shapes({"full", "rms", 2}), "query_norm.weight [16] key_norm.weight [8] ");
  EXPECT_EQ(shapes({"head", "layer", 2}),
            "query_norm.weight [4] query_norm.bias [4] key_norm.weight [4] key_norm.bias [4] ");
}

// A norm leaves the sign of a single number, or nothing.
TEST(QkNorm, NeedsMoreThanOneNumber) {
  ModelOptions options;
  options.heads = options.width = 4;
  const auto error = [&](const std::string& over, std::int64_t key_heads) {
    options.qk_norm = over;
    options.kv_heads = key_heads;
    return testing::error_of([&] { options.validate(); });
  };
  EXPECT_EQ(error("none", 1), "");
  EXPECT_EQ(error("full", 2), "");
  EXPECT_TRUE(error("full", 1).starts_with("[model] qk-norm = full needs more than one number")) << error("full", 1);
  EXPECT_TRUE(error("head", 4).starts_with("[model] qk-norm = head needs more than one number")) << error("head", 4);
  options.head_width = 2;
  EXPECT_EQ(error("head", 4), "");
}

}  // namespace tally::qk_norm_test
