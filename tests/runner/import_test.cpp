// tally convert: reads a model of another library as a run that every command accepts, and writes it again.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::import_test {

namespace fs = std::filesystem;

class ImportedRuns : public Program {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "texts");
    for (int n = 0; n < 12; ++n) {
      std::string text;
      for (int line = 0; line < 12; ++line)
        text += formatted("func f{}(x int) int {{ return x + {} }}\n", line, n * line);
      write_file(folder_ / formatted("texts/{}.go", n), text);
    }
    done("prepare data texts --vocabulary=257 --validation-part=0.3 --test-part=0 --quiet");
  }

  // A reference model with a tokenizer of all bytes, in the folder NAME-from.
  std::string source(const std::string& name) {
    const std::string path = folder_ / (name + "-from");
    if (!fs::exists(path)) {
      fs::copy(std::string(TALLY_SOURCE_DIR "/tests/reference/foreign/") + name, path);
      fs::copy(folder_ / "data/tokenizer.json", path + "/tokenizer.json");
    }
    return path;
  }
  static std::string importing(const std::string& run, const std::string& from, const std::string& options = "") {
    return "convert " + from + "-from " + run + " --quiet " + options;
  }
  void import(const std::string& run, const std::string& from, const std::string& options = "") {
    source(from);
    done(importing(run, from, options));
  }
  static std::string training(const std::string& run, const std::string& options = "") {
    return "train " + run + " --steps=4 --batch=2 --length=16 --quiet " + options;
  }
  std::string checkpoint(const std::string& run, int step) {
    return folder_ / formatted("{}/checkpoints/step-0000000{}.safetensors", run, step);
  }
  void change_json(const std::string& path, const std::string& key, const JsonValue& value) {
    JsonValue json = read_json(path);
    write_file(path, write_json(json.set(key, value)));
  }
  // Token files of these ids, two bytes each: train.bin and val.bin.
  std::string token_files(const std::string& ids) {
    write_file(folder_ / "train.bin", ids);
    write_file(folder_ / "val.bin", ids.substr(0, 160));
    return "--data=train.bin --task.validation=val.bin ";
  }
};

TEST_F(ImportedRuns, AreTakenByEveryCommand) {
  import("run", "llama");
  EXPECT_NE(done("generate run --prompt=fu --count=3"), "");
  EXPECT_NE(done("inspect run --text=func"), "");
  done("inspect run --out page.html --text='func f'");
  expect_parts(done("describe run/checkpoints/step-00000000.safetensors"), {"model.embedding.weight"});
  // The run has a tokenizer, but no text.
  const std::string no_text = "a tokenizer without a text";
  refused({{"eval run", no_text}, {"inspect run --out page.html", no_text}}, 1);
  refused(training("run"), no_text);
  done("eval run --data=data --split=validation");
  done(training("run", "--data=data"));
  EXPECT_EQ(names_of_checkpoints(folder_ / "run").size(), 2U);  // step 0 is kept
  done("resume run --steps=6 --quiet");
  done("eval run --split=validation");
  refused(importing("run", "llama"), "holds a run already", 1);
  import("run", "llama", "--force --data=data");
  done("eval run --split=validation");
}

// tests/core/bfloat16_test.cpp has the rounding.
TEST_F(ImportedRuns, AreWrittenInTwoBytesANumber) {
  import("llama", "llama", "--data=data");
  for (const std::string floats : {"bf16", "f16"}) {
    done("convert llama --as=llama --quiet --floats " + floats + " " + floats);
    EXPECT_EQ(file_json(floats + "/config.json").string("torch_dtype"), floats == "f16" ? "float16" : "bfloat16");
    expect_parts(done("describe " + floats + "/model.safetensors"), {floats == "f16" ? " F16 " : " BF16 "});
    done("convert --quiet " + floats + " " + floats + "-again");
  }
  refused("convert llama --floats=f16 x", "--floats requires --as");
}

TEST_F(ImportedRuns, AreWrittenBack) {
  for (const std::string name : {"gpt2", "llama", "neox"}) {
    import(name, name, "--data=data");
    const std::string written = "convert " + name + " --as " + name + " " + name + "-back";
    done(written);
    const JsonValue tokenizer = file_json(name + "-back/tokenizer_config.json");
    EXPECT_EQ(tokenizer.string("tokenizer_class"), "PreTrainedTokenizerFast") << name;
    EXPECT_EQ(tokenizer.string("eos_token"), "<|endoftext|>") << name;
    done("convert --quiet " + name + "-back " + name + "-again");
    const SafetensorsFile a = SafetensorsFile::open(checkpoint(name, 0)),
                          b = SafetensorsFile::open(checkpoint(name + "-again", 0));
    for (const SafetensorsEntry& entry : a.entries()) {
      EXPECT_EQ(a.read(entry.name).to_vector<float>(), b.read(entry.name).to_vector<float>()) << entry.name;
    }
    EXPECT_EQ(a.metadata().at("model"), b.metadata().at("model")) << name;
    refused(written, "is there already", 1);
  }
  refused({{"convert llama --as=gpt2 x", "gpt2 cannot say --pe rope"},
           {"convert llama --as=neox x", "neox cannot say model.norm = rms"},
           {"convert neox --as=llama x", "llama cannot say model.norm = layer"}},
          1);
  refused("convert neox --as=lama x", "did you mean 'llama'");
  EXPECT_FALSE(exists("x") || exists("x.partial"));
}

// An export has the ids of all tokens. The ends of a text come from generation_config.json.
TEST_F(ImportedRuns, KeepTheIdsOfTheirTokens) {
  const std::string from = source("llama"), again = "--ignore-key=house_mark";
  JsonValue config = read_json(from + "/config.json");
  config.set("bos_token_id", 1).set("eos_token_id", 70).set("pad_token_id", 5).set("house_mark", "x");
  write_file(from + "/config.json", write_json(config.set("max_position_embeddings", 4096)));
  write_file(from + "/generation_config.json", R"({"eos_token_id": [70, 71], "do_sample": true})");
  refused({{importing("llama", "llama"), "'house_mark' is not a key that tally knows"},
           {importing("llama", "llama", again + " --ignore-key=vocab_size"), "cannot be ignored"}},
          1);
  import("llama", "llama", again);
  done("convert llama --quiet --as llama out");
  const JsonValue back = file_json("out/config.json");
  EXPECT_EQ(back.at("eos_token_id").integers(), (std::vector<std::int64_t>{70, 71}));
  for (const char* key : {"bos_token_id", "pad_token_id", "max_position_embeddings", "rms_norm_eps"}) {
    EXPECT_EQ(back.at(key), config.at(key)) << key;
  }
}

// Ids that the configuration names as ends of a text end it, in addition to the known name in the tokenizer.
TEST_F(ImportedRuns, GenerateUntilAnyOfTheirEnds) {
  const std::string from = source("llama");
  const auto ids = [&](const std::string& run) {
    import(run, "llama");
    const JsonValue printed = json("generate " + run + " --prompt=a --count=3 --temperature=0 --quiet");
    return printed.at("samples").elements().at(0).at("ids").integers();
  };
  const std::vector<std::int64_t> made = ids("plain");
  ASSERT_EQ(made.size(), 3U);
  change_json(from + "/config.json", "eos_token_id", JsonValue::Array{made[0] == 9 ? 10 : 9, made[0]});
  EXPECT_TRUE(ids("second").empty()) << "the second of two ends";
  // The ids of generation_config.json, if it has some.
  write_file(from + "/generation_config.json", R"({"eos_token_id": [7, 8]})");
  EXPECT_EQ(ids("other"), made);
}

// Only the named parameters have optimiser state and change. A killed and resumed run ends with the same bytes.
TEST_F(ImportedRuns, TrainNamedParametersAlone) {
  const std::string more = "--data=data --train=pe.cope.* --optimiser.lr-scale=pe.*=10 --save-every=2";
  for (const std::string run : {"one", "two"}) import(run, "neox", "--pe=rope+cope --pe.p-max=8");
  done(training("one", more));
  std::string first = training("two", more);
  done(first.replace(first.find("--steps=4"), 9, "--steps=2"));
  done("resume two --steps=4 --threads=1 --quiet");
  EXPECT_TRUE(read_file(checkpoint("one", 4)) == read_file(checkpoint("two", 4)));
  const SafetensorsFile start = SafetensorsFile::open(checkpoint("one", 0)),
                        end = SafetensorsFile::open(checkpoint("one", 4));
  int changed = 0, states = 0;
  for (const SafetensorsEntry& entry : end.entries()) {
    const bool of_cope = holds(entry.name, ".position.cope.");
    if (entry.name.starts_with("optimiser.")) {
      EXPECT_TRUE(of_cope) << entry.name;
      ++states;
    } else {
      const bool same = start.read(entry.name).to_vector<float>() == end.read(entry.name).to_vector<float>();
      EXPECT_EQ(same, !of_cope) << entry.name;
      changed += !same;
    }
  }
  EXPECT_EQ(changed, 2);  // one table per layer
  EXPECT_EQ(states, 4);
  refused("resume one --train=all --steps=6", "before the first step alone");
  refused("convert one --as=neox x", "neox cannot say --pe cope+rope", 1);
}

// Even if no checkpoint is left: the configuration states that the run was imported.
TEST_F(ImportedRuns, NeverBeginAtRandom) {
  import("run", "gpt2", "--data=data");
  const std::string start = checkpoint("run", 0), kept = folder_ / "kept.safetensors";
  fs::copy_file(start, kept);
  const auto refused_to_begin = [&] {
    for (const std::string& line :
         {training("run"), std::string("resume run --quiet"), std::string("resume run --restart")}) {
      refused(line, "step-00000000.safetensors", 1);
    }
  };
  fs::remove(start);
  refused_to_begin();
  fs::remove(folder_ / "run/checkpoints");
  refused_to_begin();
  fs::create_directory(folder_ / "run/checkpoints");
  fs::copy_file(kept, start);
  done(training("run"));
}

// The optimiser has no state before the first step. The imported weights stay unchanged.
TEST_F(ImportedRuns, ChooseHowTheyAreTrainedBeforeTheFirstStep) {
  import("run", "gpt2", "--data=data");
  for (const auto& [option, message] : std::vector<Refusal>{
           {"--dtype=f64", "the model of a run cannot change: dtype f32 -> f64"},
           {"--model.heads=1", "the model of a run cannot change: model.heads"},
           {"--model.init=fan-in", "the run has its weights already, so this has no effect: model.init"},
           {"--train=pe.cope.*", "'pe.cope.*' names no parameter"},
           {"--optimiser.lr-scale=head*=2", "'head*' names no parameter"},
           {"--optimiser.lr-scale=pe.*", "no pattern with a factor"}}) {
    refused(training("run", option), message);
  }
  EXPECT_EQ(names_of_checkpoints(folder_ / "run").size(), 1U);
  const std::string choices =
      "--optimiser.name=sgd --optimiser.momentum=0.5 --model.dropout=0.1 --precision=bf16"
      " --optimiser.schedule=constant --micro-batch=1";
  expect_parts(done(training("run", choices)), {"changed: "});
  EXPECT_EQ(file_json("run/config.json").at("optimiser").string("name"), "sgd");
  refused("resume run --optimiser.name=adamw --steps=6",
          "the optimiser of a run can change before the first step alone: optimiser.name sgd -> adamw");
}

// Ids of the model itself, without a tokenizer or with one that is not read.
TEST_F(ImportedRuns, AreTrainedOnTokenFilesOfTheirOwnIds) {
  std::string ids;
  for (int t = 0; t < 400; ++t) {  // all 264 ids of the model; the tokenizer has 257
    ids += {static_cast<char>(t * 5 % 264 % 256), static_cast<char>(t * 5 % 264 / 256)};
  }
  const std::string files = token_files(ids), tokenizer = source("llama") + "/tokenizer.json";
  const auto expect_trained = [&](const std::string& run, const std::string& more = "") {
    done(training(run, more));
    const std::string evaluated = done("eval " + run + " --split=validation");
    EXPECT_TRUE(holds(evaluated, "of 79 tokens") && !holds(evaluated, "bits per byte")) << evaluated;
    done("resume " + run + " --steps=6 --quiet");
  };
  // The model has a tokenizer, which is kept for prompts and exported again.
  import("known", "llama", files);
  done(training("known"));
  done("convert known --as=llama known-back --quiet");
  EXPECT_EQ(file("known-back/tokenizer.json"), read_file(tokenizer));
  fs::rename(folder_ / "known", folder_ / "moved");
  done("generate moved --prompt=fu --count=3");

  write_file(tokenizer, R"({"model": {"type": "Unigram"}})");
  refused(importing("refused", "llama"), "--data names token files with the model's ids", 1);
  expect_parts(done("convert llama-from unread " + files), {"the model's tokenizer is not read"});
  expect_trained("unread");
  fs::remove(tokenizer);
  import("none", "llama", files);
  expect_trained("none");
  done("convert none --as=llama none-back --quiet");
  EXPECT_FALSE(exists("none-back/tokenizer.json"));
  // Imported with bytes instead of a tokenizer.
  import("bytes", "llama");
  expect_trained("bytes", files);
  EXPECT_EQ(read_file(checkpoint("bytes", 4)), read_file(checkpoint("none", 4)));
}

// A prepared text, an imported model and token files of its ids choose the same token: a known name, then eos_token of
// tokenizer_config.json. Only a model has config.json as a third place.
TEST_F(ImportedRuns, EndTextsWithTheTokenOfPreparedTexts) {
  const std::string from = source("llama"), files = token_files(std::string(400, '\1'));
  const auto end_in = [&](const std::string& folder) {
    return file_json(folder + "/manifest.json").at("tokenizer").integer("end_of_text");
  };
  // These tokens end a text in the imported model and in a run on token files.
  const auto expect_ends = [&](std::int64_t model, const std::string& of_files, const std::string& more = "") {
    import("run", "llama", more + " --force");
    import("files", "llama", files + "--force");
    done(training("files"));
    EXPECT_EQ(end_in("run/tokenizer"), model);
    EXPECT_EQ(file_json("files/config.json").at("task").string("end-token"), of_files);
  };
  const auto prepared_end = [&] {
    done("prepare own texts --tokenizer=llama-from/tokenizer.json --validation-part=0.3 --test-part=0 --quiet --force");
    return end_in("own");
  };
  // A known name, which is found in the tokenizer, comes before eos_token_id = 0 of config.json.
  expect_ends(256, "");
  EXPECT_EQ(prepared_end(), 256);

  std::string tokenizer = read_file(from + "/tokenizer.json");
  const std::string known = "<|endoftext|>";
  for (std::size_t at; (at = tokenizer.find(known)) != std::string::npos;) tokenizer.replace(at, known.size(), "<end>");
  fs::remove(from + "/tokenizer.json");
  write_file(from + "/tokenizer.json", tokenizer);
  write_file(from + "/tokenizer_config.json", R"({"eos_token": "<end>"})");
  expect_ends(256, "<end>");
  EXPECT_EQ(prepared_end(), 256);
  import("prepared", "llama", "--data=own");
  fs::remove(from + "/tokenizer_config.json");
  expect_ends(0, "0");
}

TEST_F(ImportedRuns, AreNotHalfMade) {
  const std::string from = source("gpt2"), tokenizer = from + "/tokenizer.json";
  const auto not_made = [&](const std::string& message, const std::string& more = "") {
    refused(importing("run", "gpt2", more), message, 1);
    EXPECT_FALSE(exists("run") || exists("run.partial"));
  };
  fs::rename(tokenizer, folder_ / "kept.json");
  write_file(tokenizer, "{}");
  not_made("tokenizer.json");
  fs::copy_file(folder_ / "kept.json", tokenizer, fs::copy_options::overwrite_existing);
  done("prepare other texts --vocabulary=260 --validation-part=0.3 --test-part=0 --quiet");
  not_made("another tokenizer", "--data=other");
  fs::remove_all(from);
  not_made("config.json");
  source("gpt2"), source("gpt2-wide");
  for (const std::string wrong : {"--pe=cope", "--model.width=9"}) {
    EXPECT_EQ(tally(importing("run", "gpt2", wrong)).code, 2) << wrong;
  }
  refused(importing("run", "gpt2-wide"), "the tokenizer has 257 tokens, and the model (vocab_size) 40", 1);
}

}  // namespace tally::testing::import_test
