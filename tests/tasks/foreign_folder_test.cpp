// Folders of other libraries in other forms, and invalid folders.

#include "tests/tasks/foreign_folder.hpp"

namespace tally::testing::foreign_folder_test {

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
    const std::string path = with_tensors(name, [&](NamedTensors& tensors) {
      for (auto& [theirs, value] : tensors) {
        if (theirs.starts_with(own)) theirs.erase(0, std::string_view(own).size());
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

}  // namespace tally::testing::foreign_folder_test
