// Models of other libraries: compares their logits with those from `transformers` (tests/reference/foreign), also with
// encodings in addition to a model's own. Then folders in other forms, and invalid ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/io/safetensors.hpp"
#include "core/math/random.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/foreign/weights.hpp"
#include "tests/core/io_files.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::testing::foreign_models_test {

namespace fs = std::filesystem;

void put(const std::string& path, std::string_view bytes) {
  fs::remove(path);  // much faster than overwriting it, on file systems that then sync
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string folder_of(std::string_view name) {
  return formatted("{}{}", TALLY_SOURCE_DIR "/tests/reference/foreign/", name);
}

// The f64 logits of the folder's model for the reference's tokens.
Tensor logits_of(const std::string& folder, const Tensor& tokens, const Settings& settings = {},
                 const std::string& pe = "") {
  const ForeignDescription description = read_description(folder);
  RunConfig config = config_of(description, pe);
  for (const auto& [name, value] : settings) config.set(name, value);
  const NoGrad no_grad;
  return load_foreign(folder, description, config).model->forward(tokens).to(DType::f64);
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double value : x.to_vector<double>()) most = std::max(most, std::abs(value));
  return most;
}

double difference(const Tensor& a, const Tensor& b) { return largest(a - b); }

// A modified copy of a reference.
class ForeignFolder : public ::testing::Test {
 protected:
  std::string copy(const char* name) {
    const std::string path = (fs::path(folder_.path()) / formatted("{}-{}", name, ++copies_)).string();
    fs::copy(folder_of(name), path);
    return path;
  }
  // config.json, modified by `change`.
  std::string with_config(const char* name, const std::function<void(JsonValue&)>& change) {
    const std::string path = copy(name);
    JsonValue config = read_json(path + "/config.json");
    change(config);
    put(path + "/config.json", write_json(config, 1));
    return path;
  }
  // model.safetensors, modified by `change`.
  std::string with_tensors(const char* name, const std::function<void(NamedTensors&)>& change) {
    const std::string path = copy(name);
    NamedTensors tensors;
    {
      const SafetensorsFile file = SafetensorsFile::open(path + "/model.safetensors");
      for (const SafetensorsEntry& entry : file.entries()) {
        tensors.emplace_back(entry.name, entry.dtype ? file.read(entry.name) : file.read_widened(entry.name));
      }
    }
    change(tensors);
    write_safetensors(path + "/model.safetensors", tensors);
    return path;
  }
  static std::string error(const std::string& folder, const std::string& pe = "") {
    return error_of([&] {
      const ForeignDescription description = read_description(folder);
      load_foreign(folder, description, config_of(description, pe));
    });
  }
  void expect_refused(const std::string& folder, std::initializer_list<std::string_view> parts) {
    const std::string message = error(folder);
    EXPECT_TRUE(contains(message, folder)) << message;
    for (const std::string_view part : parts) EXPECT_TRUE(contains(message, part)) << part << "\n" << message;
  }
  static Tensor& tensor(NamedTensors& tensors, std::string_view name) {
    return std::ranges::find(tensors, name, &NamedTensors::value_type::first)->second;
  }

  TemporaryFolder folder_;
  int copies_ = 0;
};

class ForeignModels : public ::testing::TestWithParam<const char*> {};

// In f64 the remaining difference comes from transformers, which computes angles in f32 for any type of model. Angles
// up to 13 are rounded by up to 13 2^-24 = 8e-7. In f32 the rule for kernels applies: at most twice the error of the
// plain implementation. Each error is relative to the library's own f64, because both of its forms round the angles.
// The reference's error is the largest of several runs (make_foreign.py).
TEST_P(ForeignModels, HaveTheLogitsOfTheirOwnLibrary) {
  const std::string folder = folder_of(GetParam());
  const SafetensorsFile reference = SafetensorsFile::open(folder + "/logits.safetensors");
  const Tensor tokens = reference.read("tokens"), expected = reference.read("logits");
  const Tensor exact = logits_of(folder, tokens, {{"dtype", "f64"}});
  EXPECT_LE(difference(exact, expected), 1e-6 * largest(expected));
  EXPECT_LE(difference(logits_of(folder, tokens), exact), 2 * reference.read("error_f32").item());
}

// A table of zeros changes nothing; reference attention is equal in every bit.
TEST_P(ForeignModels, AreTheSameFunctionWithContextualPositionsAdded) {
  const std::string folder = folder_of(GetParam());
  const Tensor tokens = SafetensorsFile::open(folder + "/logits.safetensors").read("tokens");
  const std::string pe = read_description(folder).model.encoding + "+cope";
  const Settings composed{{"model.attention", "composed"}};
  const Tensor alone = logits_of(folder, tokens, composed), with = logits_of(folder, tokens, composed, pe);
  EXPECT_EQ(alone.to_vector<double>(), with.to_vector<double>());
  const double error = SafetensorsFile::open(folder + "/logits.safetensors").read("error_f32").item();
  EXPECT_LE(difference(logits_of(folder, tokens, {}, pe), alone), 3 * error);  // both round
}

// While the table is zero, no gate changes a score. The first step moves only the table, and gates follow later.
TEST_P(ForeignModels, TrainTheTableBeforeTheGates) {
  const std::string folder = folder_of(GetParam());
  const ForeignDescription description = read_description(folder);
  RunConfig config = config_of(description, description.model.encoding + "+cope");
  config.set("pe.cope.gates", "sep-keys");
  const ForeignLoaded loaded = load_foreign(folder, description, config);
  const Tensor tokens = SafetensorsFile::open(folder + "/logits.safetensors").read("tokens");
  const Tensor logits = loaded.model->forward(tokens);
  backward(sum(logits * logits));
  int tables = 0, gates = 0;
  for (const auto& [name, parameter] : loaded.model->parameters()) {
    if (!contains(name, ".cope.")) continue;
    const bool table = contains(name, "table");
    const Tensor moved = gradient(parameter);
    const double most = moved.defined() ? largest(moved.to(DType::f64)) : 0;
    (table ? tables : gates) += 1;
    EXPECT_EQ(most > 0, table) << name;
  }
  EXPECT_GT(tables, 0);
  EXPECT_GT(gates, 0);
}

// An exported model is read back to the same bytes.
TEST_P(ForeignModels, AreWrittenAsTheyWereRead) {
  const std::string folder = folder_of(GetParam());
  const ForeignDescription description = read_description(folder);
  const RunConfig config = config_of(description, "");
  const ForeignLoaded loaded = load_foreign(folder, description, config);
  EXPECT_TRUE(loaded.not_in_file.empty());
  const ForeignWeights weights = ForeignWeights::open(folder);
  const NamedTensors written = foreign_tensors(*description.family, config.model, loaded.model->parameters());
  EXPECT_EQ(written.size(), weights.tensors().size());
  for (const auto& [name, tensor] : written) {
    const Tensor read = weights.tensors().at(name).file->read_widened(name);
    EXPECT_EQ(read.shape(), tensor.shape()) << name;
    EXPECT_EQ(read.to_vector<float>(), tensor.to_vector<float>()) << name;
  }
}

std::string name_of_case(const ::testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Reference, ForeignModels,
                         ::testing::Values("gpt2", "gpt2-wide", "llama", "llama-grouped", "llama-shards",
                                           "llama-biased", "neox", "neox-sequential"),
                         name_of_case);

// All 16-bit numbers.
TEST(ForeignNumbers, AreWidenedExactly) {
  const TemporaryFolder folder;
  const std::string path = (fs::path(folder.path()) / "all.safetensors").string();
  for (const bool half : {true, false}) {
    const std::string header = formatted("{{\"x\":{{\"dtype\":\"{}\",\"shape\":[65536],\"data_offsets\":[0,131072]}}}}",
                                         half ? "F16" : "BF16");
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes += header;
    for (int n = 0; n < 65536; ++n) bytes += {static_cast<char>(n & 255), static_cast<char>(n >> 8)};
    put(path, bytes);
    const std::vector<float> values = SafetensorsFile::open(path).read_widened("x").to_vector<float>();
    const int fraction_bits = half ? 10 : 7, bias = half ? 15 : 127, most = half ? 31 : 255;
    for (int n = 0; n < 65536; ++n) {
      const int exponent = n >> fraction_bits & most, fraction = n & ((1 << fraction_bits) - 1);
      const double part = std::ldexp(fraction, -fraction_bits);
      const double size = exponent == 0      ? std::ldexp(part, 1 - bias)
                          : exponent == most ? (fraction == 0 ? INFINITY : NAN)
                                             : std::ldexp(1 + part, exponent - bias);
      const double expected = (n & 0x8000) != 0 ? -size : size;
      const auto value = static_cast<double>(values[static_cast<std::size_t>(n)]);
      ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << n;
      ASSERT_EQ(std::signbit(value), (n & 0x8000) != 0) << n;
    }
  }
}

TEST_F(ForeignFolder, OlderFormsOfItsSettings) {
  const auto expect_same = [&](const char* name, const std::function<void(JsonValue&)>& change) {
    const Tensor tokens = SafetensorsFile::open(folder_of(name) + "/logits.safetensors").read("tokens");
    EXPECT_EQ(logits_of(with_config(name, change), tokens).to_vector<double>(),
              logits_of(folder_of(name), tokens).to_vector<double>())
        << name;
  };
  const auto older = [](JsonValue& config) {
    JsonValue rope = config.at("rope_parameters");
    config.remove("rope_parameters");
    config.set("rope_theta", rope.at("rope_theta"));
    rope.remove("rope_theta");
    config.set("rope_scaling", rope);
  };
  expect_same("llama-shards", older);
  expect_same("llama-biased", [&](JsonValue& config) {
    older(config);
    JsonValue scaling = config.at("rope_scaling");
    scaling.set("type", scaling.at("rope_type"));
    scaling.remove("rope_type");
    config.set("rope_scaling", scaling);
  });
  expect_same("neox", [](JsonValue& config) {
    config.remove("rope_parameters");
    config.set("rotary_pct", 0.5).set("rotary_emb_base", 10000).set("rope_scaling", {});
  });
  expect_same("gpt2", [](JsonValue& config) { config.set("n_ctx", 32).remove("tie_word_embeddings"); });
}

TEST_F(ForeignFolder, NamesWithoutTheFamilysPrefixOrWithOthers) {
  for (const auto& [name, own] : {std::pair{"gpt2", "transformer."}, {"neox", "gpt_neox."}}) {
    const Tensor tokens = SafetensorsFile::open(folder_of(name) + "/logits.safetensors").read("tokens");
    const std::string path = with_tensors(name, [prefix = std::string_view(own)](NamedTensors& tensors) {
      for (auto& [theirs, value] : tensors) {
        if (theirs.starts_with(prefix)) theirs.erase(0, prefix.size());
      }
    });
    EXPECT_EQ(logits_of(path, tokens).to_vector<double>(), logits_of(folder_of(name), tokens).to_vector<double>());
  }
  expect_refused(with_tensors("gpt2",
                              [](NamedTensors& tensors) {
                                for (auto& [theirs, value] : tensors) theirs.insert(0, "_orig_mod.");
                              }),
                 {"has no tensor 'transformer.wte.weight'", "but '_orig_mod.transformer.wte.weight'; remove"});
}

// As in a repository cloned without its large files.
TEST_F(ForeignFolder, PointersOfGitLfs) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n";
  for (const char* file : {"model.safetensors", "config.json"}) {
    const std::string path = copy("gpt2");
    put(path + "/" + file, pointer);
    expect_refused(path, {file, "is a Git LFS pointer", "548105171 bytes", "git lfs pull"});
  }
}

TEST_F(ForeignFolder, SettingsThatNoModelHas) {
  // Without a limit in the file: the options' own limits apply.
  const std::string deep = with_config("gpt2", [](JsonValue& config) { config.set("n_layer", 1'000'000'000); });
  EXPECT_TRUE(contains(error(deep), "layers")) << error(deep);
  EXPECT_TRUE(contains(error(folder_of("llama"), "cope"), "leaves out rope"));
  for (const std::string name : {"gpt2", "llama", "neox"}) {
    RunConfig config = config_of(read_description(folder_of(name)), "");
    config.set("model.qk-norm", "head");
    EXPECT_EQ(error_of([&] { foreign_config(find_family(name), config, *make_task("flip-flop")); }),
              "[export] " + name + " cannot say model.qk-norm = head");
  }
}

TEST_F(ForeignFolder, TensorsThatAreRefused) {
  const auto refused = [&](const char* name, const std::function<void(NamedTensors&)>& change,
                           std::initializer_list<std::string_view> parts) {
    expect_refused(with_tensors(name, change), parts);
  };
  constexpr std::string_view first = "transformer.h.0.attn.c_attn.weight";
  refused("gpt2",
          [&](NamedTensors& t) {
            tensor(t, first) = Tensor::zeros({24, 8});
          },
          {first, "is [24, 8]", "by config.json [8, 24]"});
  refused("gpt2", [&](NamedTensors& t) { tensor(t, first) = Tensor::zeros({8, 24}, DType::i32); }, {first, "is I32"});
  refused("gpt2", [&](NamedTensors& t) { t.pop_back(); }, {"has no tensor 'transformer.wte.weight', which a gpt2"});
  refused("gpt2", [&](NamedTensors& t) { std::erase_if(t, [&](const auto& one) { return one.first == first; }); },
          {formatted("'{}' is missing", first)});
  refused("gpt2", [&](NamedTensors& t) { t.emplace_back("adapter.weight", Tensor::zeros({2})); },
          {"'adapter.weight' is none of a gpt2 model's tensors"});
  refused("gpt2", [&](NamedTensors& t) { tensor(t, first).span<float>()[5] = NAN; }, {first, "not finite"});
  refused("gpt2",
          [&](NamedTensors& t) {
            t.emplace_back("lm_head.weight", tensor(t, "transformer.wte.weight").clone());
            t.back().second.span<float>()[0] += 1;
          },
          {"'lm_head.weight' differs from 'transformer.wte.weight'", "tie_word_embeddings"});
  expect_refused(with_config("gpt2", [](JsonValue& config) { config.set("vocab_size", 263); }),
                 {"'transformer.wte.weight' is [264, 8], and by config.json [263, 8]"});
  const std::string cut = copy("gpt2");
  fs::resize_file(cut + "/model.safetensors", 18000);
  expect_refused(cut, {"model.safetensors"});
  const std::string pickled = copy("gpt2");
  fs::rename(pickled + "/model.safetensors", pickled + "/pytorch_model.bin");
  expect_refused(pickled, {"pytorch_model.bin is not read"});
}

TEST_F(ForeignFolder, ShardsThatAreRefused) {
  const std::string second = "model-00002-of-00003.safetensors";
  const auto with_index = [&](const std::function<void(JsonValue&)>& change) {
    const std::string path = copy("llama-shards"), index = path + "/model.safetensors.index.json";
    JsonValue json = read_json(index), map = json.at("weight_map");
    change(map);
    json.set("weight_map", map);
    put(index, write_json(json));
    return path;
  };
  const std::string missing = copy("llama-shards");
  fs::remove(missing + "/" + second);
  expect_refused(missing, {second, "is missing"});
  expect_refused(with_index([](JsonValue& map) { map.set("model.norm.weight", "../elsewhere.safetensors"); }),
                 {"'model.norm.weight'", "'../elsewhere.safetensors'", "no file beside it"});
  expect_refused(with_index([&](JsonValue& map) { map.set("model.norm.weight", second); }),
                 {"'model.norm.weight' is to be in"});
  expect_refused(with_index([&](JsonValue& map) { map.set("more.weight", second); }),
                 {"'more.weight'", second, "does not hold it"});
  expect_refused(with_index([&](JsonValue& map) { map.set("more.weight", 3); }), {"expected a string"});
}

}  // namespace tally::testing::foreign_models_test
