// Models of other libraries: the logits of those that `transformers` wrote (tests/reference/foreign), what encodings
// beside their own change, and what is wrong in a folder.
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
#include "core/random.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/foreign/weights.hpp"
#include "tests/core/io_files.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::error_of;

void put(const std::string& path, std::string_view bytes) {
  fs::remove(path);  // much faster than to write over it, on file systems that then sync
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string folder_of(std::string_view name) { return concat(TALLY_SOURCE_DIR "/tests/reference/foreign/", name); }

// The logits that the folder's model gives to the reference's tokens, f64.
Tensor logits_of(const std::string& folder, const Tensor& tokens, const testing::Settings& settings = {},
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

class ForeignModels : public ::testing::TestWithParam<const char*> {};

// In f64 what is left is that transformers computes angles in f32 whatever the type of the model: up to 13 here, so
// rounded by up to 13 2^-24 = 8e-7. In f32 the rule for kernels: at most twice the error of the plain implementation,
// each measured against its own f64, since that rounding of angles is in both of theirs; the reference's is the largest
// of several runs (make_foreign.py).
TEST_P(ForeignModels, HaveTheLogitsOfTheirOwnLibrary) {
  const std::string folder = folder_of(GetParam());
  const SafetensorsFile reference = SafetensorsFile::open(folder + "/logits.safetensors");
  const Tensor tokens = reference.read("tokens"), expected = reference.read("logits");
  const Tensor exact = logits_of(folder, tokens, {{"dtype", "f64"}});
  EXPECT_LE(difference(exact, expected), 1e-6 * largest(expected));
  EXPECT_LE(difference(logits_of(folder, tokens), exact), 2 * reference.read("error_f32").item());
}

// A table of zeros changes nothing, not even a bit where all is written out.
TEST_P(ForeignModels, AreTheSameFunctionWithContextualPositionsAdded) {
  const std::string folder = folder_of(GetParam());
  const Tensor tokens = SafetensorsFile::open(folder + "/logits.safetensors").read("tokens");
  const std::string pe = read_description(folder).model.encoding + "+cope";
  const testing::Settings composed{{"model.attention", "composed"}};
  const Tensor alone = logits_of(folder, tokens, composed), with = logits_of(folder, tokens, composed, pe);
  EXPECT_EQ(alone.to_vector<double>(), with.to_vector<double>());
  const double error = SafetensorsFile::open(folder + "/logits.safetensors").read("error_f32").item();
  EXPECT_LE(difference(logits_of(folder, tokens, {}, pe), alone), 3 * error);  // both round
}

// At a table of zeros no gate changes a score: the first step moves the table alone, gates follow once it is not zero.
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

// What is written reads back to the same bytes.
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
                                           "llama-biased", "llama-longrope", "neox", "neox-longrope",
                                           "neox-sequential"),
                         name_of_case);

// A copy of one of the references that is changed.
class ForeignFolder : public ::testing::Test {
 protected:
  std::string copy(const char* name) {
    const std::string path = (fs::path(folder_.path()) / concat(name, "-", ++copies_)).string();
    fs::copy(folder_of(name), path);
    return path;
  }
  // config.json after `change`.
  std::string with_config(const char* name, const std::function<void(JsonValue&)>& change) {
    const std::string path = copy(name);
    JsonValue config = read_json(path + "/config.json");
    change(config);
    put(path + "/config.json", write_json(config, 1));
    return path;
  }
  // model.safetensors after `change`.
  std::string with_tensors(const char* name, const std::function<void(NamedTensors&)>& change) {
    const std::string path = copy(name);
    NamedTensors tensors;
    {
      const SafetensorsFile file = SafetensorsFile::open(path + "/model.safetensors");
      for (const SafetensorsEntry& entry : file.entries()) tensors.emplace_back(entry.name, file.read(entry.name));
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

// As GPT-2's own files are: without the prefix, with buffers.
TEST_F(ForeignFolder, NamesWithoutPrefixAndBuffers) {
  const Tensor tokens = SafetensorsFile::open(folder_of("gpt2") + "/logits.safetensors").read("tokens");
  const std::string path = with_tensors("gpt2", [](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) name.erase(0, std::string_view("transformer.").size());
    tensors.emplace_back("h.0.attn.bias", Tensor::zeros({1, 1, 4, 4}));
    tensors.emplace_back("lm_head.weight", tensor(tensors, "wte.weight"));
  });
  EXPECT_EQ(logits_of(path, tokens).to_vector<double>(), logits_of(folder_of("gpt2"), tokens).to_vector<double>());
}

// As they come from a compiler, from data parallelism, from a module around the model, or from the model alone.
TEST_F(ForeignFolder, NamesWithThePrefixesOfWrappers) {
  for (const char* name : {"gpt2", "llama", "neox"}) {
    const Tensor tokens = SafetensorsFile::open(folder_of(name) + "/logits.safetensors").read("tokens");
    const std::string own = std::string(name) == "gpt2"   ? "transformer."
                            : name == std::string("neox") ? "gpt_neox."
                                                          : "model.";
    for (const std::string prefix : {"_orig_mod.", "module.", "module._orig_mod.", "model.", "student.net.", "-"}) {
      const std::string path = with_tensors(name, [&](NamedTensors& tensors) {
        for (auto& [theirs, value] : tensors) {
          if (prefix != "-") theirs.insert(0, prefix);
          if (prefix == "-" && theirs.starts_with(own)) theirs.erase(0, own.size());
        }
      });
      EXPECT_EQ(logits_of(path, tokens).to_vector<double>(), logits_of(folder_of(name), tokens).to_vector<double>())
          << name << " " << prefix;
    }
  }
  // Within a name, as where blocks are compiled one by one.
  const Tensor tokens = SafetensorsFile::open(folder_of("llama") + "/logits.safetensors").read("tokens");
  const std::string inner = with_tensors("llama", [](NamedTensors& tensors) {
    for (auto& [theirs, value] : tensors) {
      if (const std::size_t at = theirs.find("self_attn."); at != theirs.npos) theirs.insert(at, "_orig_mod.");
    }
  });
  EXPECT_EQ(logits_of(inner, tokens).to_vector<double>(), logits_of(folder_of("llama"), tokens).to_vector<double>());
}

// As where a repository was cloned without its large files.
TEST_F(ForeignFolder, PointersOfGitLfs) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n";
  for (const char* file : {"model.safetensors", "config.json"}) {
    const std::string path = copy("gpt2");
    put(path + "/" + file, pointer);
    expect_refused(path, {file, "is a Git LFS pointer", "548105171 bytes", "git lfs pull"});
  }
}

// The same numbers where q, k and v alone have biases: the others are 0, in and out.
TEST_F(ForeignFolder, Qwen2HasBiasesOfItsOwn) {
  const std::string path = with_tensors("llama-biased", [](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) {
      if (name.ends_with(".bias")) value = Tensor::zeros(value.shape());
    }
    for (const char* part : {"q", "k", "v"}) {
      tensor(tensors, concat("model.layers.0.self_attn.", part, "_proj.bias")) = Tensor::full({16}, 0.25);
    }
  });
  const std::string qwen = copy("llama-biased");
  JsonValue config = read_json(qwen + "/config.json");
  for (const char* key : {"attention_bias", "mlp_bias"}) config.remove(key);
  put(qwen + "/config.json", write_json(config.set("model_type", "qwen2")));
  NamedTensors kept;
  {
    const SafetensorsFile file = SafetensorsFile::open(path + "/model.safetensors");
    for (const SafetensorsEntry& entry : file.entries()) {
      const bool other =
          entry.name.ends_with(".bias") && (contains(entry.name, "mlp") || contains(entry.name, "o_proj"));
      if (!other) kept.emplace_back(entry.name, file.read_widened(entry.name));
    }
  }
  write_safetensors(qwen + "/model.safetensors", kept);
  const Tensor tokens = SafetensorsFile::open(folder_of("llama-biased") + "/logits.safetensors").read("tokens");
  EXPECT_EQ(logits_of(qwen, tokens).to_vector<double>(), logits_of(path, tokens).to_vector<double>());
  const ForeignDescription description = read_description(qwen);
  const ForeignLoaded loaded = load_foreign(qwen, description, config_of(description, ""));
  EXPECT_TRUE(loaded.not_in_file.empty());
  EXPECT_EQ(foreign_tensors(*description.family, config_of(description, "").model, loaded.model->parameters()).size(),
            kept.size());
  for (const auto& [name, parameter] : loaded.model->parameters()) {
    if (name == "blocks.0.mlp.up.bias") Tensor(parameter).copy_from(Tensor::full(parameter.shape(), 1));
  }
  EXPECT_TRUE(contains(error_of([&] {
                         foreign_tensors(*description.family, config_of(description, "").model,
                                         loaded.model->parameters());
                       }),
                       "qwen2 models have no blocks.0.mlp.up.bias, which is not 0"));
}

TEST_F(ForeignFolder, SettingsThatAreRefused) {
  const auto refused = [&](const char* name, std::string_view key, const JsonValue& value, std::string_view why) {
    expect_refused(with_config(name, [&](JsonValue& config) { config.set(key, value); }), {concat("'", key, "'"), why});
  };
  refused("gpt2", "model_type", "mamba", "there are gpt2, llama, gpt_neox, qwen2");
  refused("gpt2", "n_head", 3, "does not divide n_embd = 8");
  refused("gpt2", "n_head", 0, "must be from 1");
  refused("gpt2", "n_layer", "2", "must be an integer, not a string");
  refused("gpt2", "n_layer", {}, "is missing");
  refused("gpt2", "vocab_size", std::int64_t{1} << 40, "must be from 1");
  refused("gpt2", "activation_function", "silu", "activation that tally does not have");
  refused("gpt2", "scale_attn_weights", false, "does not have");
  refused("gpt2", "sliding_window", 4096, "changes what the model computes");
  refused("gpt2", "window", 4096, "may change what the model computes; --ignore-key NAME");
  refused("llama", "num_key_value_heads", 3, "does not divide");
  refused("llama", "hidden_act", "gelu", "must be silu");
  refused("llama", "mlp_bias", true, "in both or in none");
  refused("llama", "rope_scaling", JsonValue::object({{"type", "dynamic"}}), "stands beside rope_parameters");
  refused("llama", "rope_theta", 20000.0, "contradicts");
  refused("neox", "attention_bias", false, "does not have");
  const auto rope = [&](const char* name, JsonValue value, std::string_view key, std::string_view why) {
    expect_refused(with_config(name, [&](JsonValue& config) { config.set("rope_parameters", value); }), {key, why});
  };
  rope("llama", JsonValue::object({{"rope_type", "mrope"}, {"factor", 2.0}}), "'rope_type'", "'mrope'");
  rope("llama", JsonValue::object({{"rope_type", "llama3"}, {"factor", 2.0}}), "'low_freq_factor'", "is missing");
  rope("llama", JsonValue::object({{"rope_type", "linear"}}), "'factor'", "is missing");
  rope("llama", JsonValue::object({{"rope_type", "linear"}, {"factor", 0.5}}), "'factor'", "at least 1");
  rope("llama", JsonValue::object({{"rope_type", "yarn"}, {"factor", 2.0}, {"beta_fast", -1}}), "'beta_fast'",
       "above 0");
  rope("llama", JsonValue::object({{"rope_type", "default"}, {"odd", 1}}), "'odd'", "may change");
  rope("neox", JsonValue::object({{"partial_rotary_factor", 0.3}}), "dims", "even number");
  expect_refused(with_config("llama", [](JsonValue& config) { config = JsonValue::array(); }), {"object"});
  // Without a word of the file: the options' own limits.
  const std::string deep = with_config("gpt2", [](JsonValue& config) { config.set("n_layer", 1'000'000'000); });
  EXPECT_TRUE(contains(error(deep), "layers")) << error(deep);
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
  refused("gpt2", [&](NamedTensors& t) { t.pop_back(); },
          {"has no tensor 'transformer.wte.weight'", "its names are like"});
  refused("gpt2", [&](NamedTensors& t) { std::erase_if(t, [&](const auto& one) { return one.first == first; }); },
          {concat("'", first, "' is missing")});
  refused("gpt2",
          [&](NamedTensors& t) {
            t.emplace_back("other.wte.weight", Tensor::zeros({264, 8}));
          },
          {"holds several models, 'other.wte.weight' and 'transformer.wte.weight'"});
  refused("gpt2",
          [&](NamedTensors& t) {
            t.emplace_back("module.transformer.wte.weight", Tensor::zeros({264, 8}));
          },
          {"holds several models"});
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

TEST_F(ForeignFolder, TypesOfEightBits) {
  const std::string path = copy("gpt2"), file = path + "/model.safetensors";
  const std::string header =
      "{\"transformer.wte.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[264,8],\"data_offsets\":[0,2112]}}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  put(file, bytes + header + std::string(2112, '\0'));
  expect_refused(path, {"'transformer.wte.weight' is F8_E4M3; F32, F16 and BF16 are read"});
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
  const std::string twice = copy("llama-shards"), third = twice + "/model-00003-of-00003.safetensors";
  {
    const SafetensorsFile file = SafetensorsFile::open(third);
    NamedTensors tensors{{"model.embed_tokens.weight", Tensor::zeros({40, 16})}};
    for (const SafetensorsEntry& entry : file.entries()) {
      tensors.emplace_back(entry.name, file.read_widened(entry.name));
    }
    write_safetensors(third, tensors);
  }
  expect_refused(twice, {"'model.embed_tokens.weight' is in two shards"});
}

TEST_F(ForeignFolder, EncodingsThatLeaveOutItsOwn) {
  EXPECT_TRUE(contains(error(folder_of("llama"), "cope"), "leaves out rope"));
  EXPECT_TRUE(contains(error(folder_of("gpt2"), "0:absolute,1:cope"), "leaves out absolute"));
}

// A byte of config.json or of a header is another: a model, or an Error that is no bug of ours.
TEST_F(ForeignFolder, FilesWithWrongBytes) {
  const std::string path = copy("llama-shards");
  const auto open = [&] {
    try {
      const ForeignDescription description = read_description(path);
      const RunConfig config = config_of(description, "");
      if (config.model.layers <= 4 && config.model.width <= 64) load_foreign(path, description, config);
    } catch (const Error&) {
    }
  };
  for (const char* name : {"config.json", "model.safetensors.index.json", "model-00003-of-00003.safetensors"}) {
    std::string bytes;
    {
      const FileReader reader(path + "/" + name);
      bytes = reader.read_string(0, reader.size());
    }
    Rng rng({1, stream_of(name), 0});
    for (int trial = 0; trial < 60; ++trial) {
      std::string changed = bytes;
      const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size(), 900));
      changed[rng.below(size)] = static_cast<char>(rng.below(256));
      put(path + "/" + name, changed);
      EXPECT_NO_THROW(open()) << name << " " << trial;
    }
    put(path + "/" + name, bytes);
  }
}

// Numbers of 16 bits: all that there are.
TEST(ForeignNumbers, AreWidenedExactly) {
  const TemporaryFolder folder;
  const std::string path = (fs::path(folder.path()) / "all.safetensors").string();
  for (const bool half : {true, false}) {
    const std::string header =
        concat("{\"x\":{\"dtype\":\"", half ? "F16" : "BF16", "\",\"shape\":[65536],\"data_offsets\":[0,131072]}}");
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

}  // namespace
}  // namespace tally
