// tally convert: reads a model of another library as a run that every command accepts, and writes it again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/safetensors.hpp"
#include "tests/runner/program.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace import_test {

namespace fs = std::filesystem;

class ImportedRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "texts");
    for (int n = 0; n < 12; ++n) {
      std::string text;
      for (int line = 0; line < 12; ++line)
        text += formatted("func f{}(x int) int {{ return x + {} }}\n", line, n * line);
      write_file(folder_ / formatted("texts/{}.go", n), text);
    }
    expect_done({"prepare", folder_ / "data", folder_ / "texts", "--vocabulary=257", "--validation-part=0.3",
                 "--test-part=0", "--quiet"});
  }

  // A reference model with a tokenizer of all bytes.
  std::string source(const std::string& name) {
    const std::string path = folder_ / (name + "-from");
    if (!fs::exists(path)) {
      fs::copy(std::string(TALLY_SOURCE_DIR "/tests/reference/foreign/") + name, path);
      fs::copy(folder_ / "data/tokenizer.json", path + "/tokenizer.json");
    }
    return path;
  }
  Finished import(const std::string& run, const std::string& from, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"convert", from, folder_ / run, "--quiet"});
    return run_tally(more, folder_);
  }
  Finished expect_done(const std::vector<std::string>& words) {
    Finished finished = run_tally(words, folder_);
    EXPECT_EQ(finished.code, 0) << words.front() << ": " << finished.err;
    return finished;
  }
  void expect_refused(const Finished& finished, int code, std::string_view message) {
    EXPECT_EQ(finished.code, code) << finished.err;
    EXPECT_TRUE(holds(finished.err, message)) << message << "\n" << finished.err;
  }
  std::vector<std::string> training(const std::string& run, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", folder_ / run, "--steps=4", "--batch=2", "--length=16", "--quiet"});
    return more;
  }
  std::string checkpoint(const std::string& run, int step) {
    return folder_ / formatted("{}/checkpoints/step-0000000{}.safetensors", run, step);
  }
  std::string data() const { return "--data=" + (folder_ / "data"); }

  TemporaryFolder folder_;
};

TEST_F(ImportedRuns, AreTakenByEveryCommand) {
  ASSERT_EQ(import("run", source("llama")).code, 0);
  const std::string run = folder_ / "run";
  EXPECT_NE(expect_done({"generate", run, "--prompt=fu", "--count=3"}).out, "");
  EXPECT_NE(expect_done({"inspect", run, "--text=func"}).out, "");
  expect_done({"inspect", run, "--out", folder_ / "page.html", "--text=func f"});
  EXPECT_TRUE(holds(expect_done({"describe", checkpoint("run", 0)}).out, "model.embedding.weight"));
  // The run has a tokenizer, but no text.
  expect_refused(run_tally({"eval", run}, folder_), 1, "a tokenizer without a text");
  expect_refused(run_tally({"inspect", run, "--out", folder_ / "page.html"}, folder_), 1, "a tokenizer without a text");
  expect_done({"eval", run, data(), "--split=validation"});
  expect_refused(run_tally(training("run"), folder_), 2, "a tokenizer without a text");
  expect_done(training("run", {data()}));
  EXPECT_EQ(names_of_checkpoints(run).size(), 2U);  // step 0 is kept
  expect_done({"resume", run, "--steps=6", "--quiet"});
  expect_done({"eval", run, "--split=validation"});
  expect_refused(import("run", source("llama")), 1, "holds a run already");
  EXPECT_EQ(import("run", source("llama"), {"--force", data()}).code, 0);
  expect_done({"eval", run, "--split=validation"});
}

// The weights are rounded to the nearest 16-bit numbers.
TEST_F(ImportedRuns, AreWrittenInTwoBytesANumber) {
  ASSERT_EQ(import("llama", source("llama"), {data()}).code, 0);
  const SafetensorsFile own = SafetensorsFile::open(checkpoint("llama", 0));
  for (const std::string floats : {"bf16", "f16"}) {
    const std::string out = folder_ / floats, again = floats + "-again";
    expect_done({"convert", folder_ / "llama", "--as=llama", "--floats", floats, out, "--quiet"});
    EXPECT_EQ(parse_json(read_text(out + "/config.json", 1 << 20), {}, "config.json").string("torch_dtype"),
              floats == "f16" ? "float16" : "bfloat16");
    ASSERT_EQ(import(again, out).code, 0);
    const SafetensorsFile back = SafetensorsFile::open(checkpoint(again, 0));
    const double half_a_step = floats == "f16" ? 0x1p-11 : 0x1p-8;
    double largest = 0;
    for (const SafetensorsEntry& entry : own.entries()) {
      const std::vector<float> a = own.read(entry.name).to_vector<float>(),
                               b = back.read(entry.name).to_vector<float>();
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::abs(a[i]) > 1e-4F) largest = std::max(largest, static_cast<double>(std::abs(b[i] / a[i] - 1)));
      }
    }
    EXPECT_LE(largest, half_a_step);
    EXPECT_GT(largest, half_a_step / 2);
  }
  expect_refused(run_tally({"convert", folder_ / "llama", "--floats=f16", folder_ / "x"}, folder_), 2,
                 "--floats requires --as");
}

// Files in the run's folder are found after the folder or the working directory changes. A text is still found at its
// old place.
TEST_F(ImportedRuns, AreMovedWithWhatIsTheirs) {
  const auto in_folder = [&](const std::string& folder, const std::string& words) {
    return run_program({"/bin/sh", "-c", formatted("cd '{}' && exec '{}' {}", folder, TALLY_RUNNER, words)}, folder_);
  };
  const Finished imported = in_folder(folder_.path().string(), formatted("convert '{}' run --quiet", source("llama")));
  ASSERT_EQ(imported.code, 0) << imported.err;
  fs::create_directory(folder_ / "elsewhere");
  fs::rename(folder_ / "run", folder_ / "elsewhere/run");
  const std::string moved = folder_ / "elsewhere/run";
  const std::string generate = formatted("generate '{}' --prompt=fu --count=3 --seed=1", moved);
  const Finished first = in_folder("/", generate);
  EXPECT_EQ(first.code, 0) << first.err;

  const std::string train = "train run --data ../data --optimiser.warmup=0 --length=8 --batch=2 --steps=2 --quiet";
  const Finished trained = in_folder(folder_ / "elsewhere", train);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(read_json(moved + "/config.json").at("task").string("data"), folder_ / "elsewhere/../data");
  fs::rename(moved, folder_ / "again");
  const Finished from_root = in_folder("/", formatted("resume '{}' --steps=3 --quiet", folder_ / "again"));
  EXPECT_EQ(from_root.code, 0) << from_root.err;
}

TEST_F(ImportedRuns, AreWrittenBack) {
  for (const char* name : {"gpt2", "llama", "neox"}) {
    ASSERT_EQ(import(name, source(name), {data()}).code, 0);
    const std::string out = folder_ / formatted("{}-back", name);
    const Finished exported = expect_done({"convert", folder_ / name, "--as", name, out});
    const bool noted = holds(exported.out,
                             "puts no token in front of a text; a llama model's own tokenizer usually "
                             "puts bos_token_id (0) there\n");
    EXPECT_EQ(noted, name == std::string("llama")) << exported.out;
    const JsonValue tokenizer = read_json(out + "/tokenizer_config.json");
    EXPECT_EQ(tokenizer.string("tokenizer_class"), "PreTrainedTokenizerFast") << name;
    EXPECT_EQ(tokenizer.string("eos_token"), "<|endoftext|>") << name;
    ASSERT_EQ(import(formatted("{}-again", name), out).code, 0);
    const SafetensorsFile a = SafetensorsFile::open(checkpoint(name, 0)),
                          b = SafetensorsFile::open(checkpoint(formatted("{}-again", name), 0));
    for (const SafetensorsEntry& entry : a.entries()) {
      EXPECT_EQ(a.read(entry.name).to_vector<float>(), b.read(entry.name).to_vector<float>()) << entry.name;
    }
    EXPECT_EQ(a.metadata().at("model"), b.metadata().at("model")) << name;
    expect_refused(run_tally({"convert", folder_ / name, "--as", name, out}, folder_), 1, "is there already");
  }
  expect_refused(run_tally({"convert", folder_ / "llama", "--as=gpt2", folder_ / "x"}, folder_), 1,
                 "gpt2 cannot say --pe rope");
  expect_refused(run_tally({"convert", folder_ / "llama", "--as=neox", folder_ / "x"}, folder_), 1,
                 "neox cannot say model.norm = rms");
  expect_refused(run_tally({"convert", folder_ / "neox", "--as=llama", folder_ / "x"}, folder_), 1,
                 "llama cannot say model.norm = layer");
  expect_refused(run_tally({"convert", folder_ / "neox", "--as=lama", folder_ / "x"}, folder_), 2,
                 "did you mean 'llama'");
  EXPECT_FALSE(fs::exists(folder_ / "x") || fs::exists(folder_ / "x.partial"));
}

// Every field with a meaning for the model or its tokens is exported again, and so are keys that the user ignored.
TEST_F(ImportedRuns, KeepEveryFieldOfTheirConfiguration) {
  for (const std::string name : {"gpt2", "llama", "neox"}) {
    const std::string from = source(name), run = name + "-kept", out = folder_ / (name + "-out");
    JsonValue config = read_json(from + "/config.json");
    config.set("bos_token_id", 1).set("eos_token_id", JsonValue::Array{70, 71}).set("pad_token_id", 5);
    config.set("initializer_range", 0.03).set("_num_labels", 1).set("house_mark", "x");
    if (name != "gpt2") config.set("max_position_embeddings", 4096);
    const JsonValue generation = JsonValue::object({{"eos_token_id", JsonValue::Array{70, 71}}, {"do_sample", true}});
    write_file(from + "/config.json", write_json(config));
    write_file(from + "/generation_config.json", write_json(generation));
    expect_refused(import(run, from), 1, "'house_mark' is not a key that tally knows");
    expect_refused(import(run, from, {"--ignore-key=vocab_size", "--ignore-key=house_mark"}), 1, "cannot be ignored");
    ASSERT_EQ(import(run, from, {"--ignore-key=house_mark"}).code, 0);
    expect_done({"convert", folder_ / run, "--as", name, out, "--quiet"});
    const JsonValue back = read_json(out + "/config.json");
    for (const auto& [key, value] : config.members()) {
      const bool of_the_file = key == "dtype" || key == "transformers_version", of_rope = key == "rope_parameters";
      if (of_the_file || of_rope || value.is_null()) continue;
      ASSERT_TRUE(back.contains(key)) << name << " " << key;
      EXPECT_EQ(write_json(back.at(key)), write_json(value)) << name << " " << key;
    }
    EXPECT_EQ(read_json(out + "/generation_config.json"), generation);
    // Reads the export with the same options and compares the fields.
    ASSERT_EQ(import(run + "-again", out, {"--ignore-key=house_mark"}).code, 0);
    EXPECT_EQ(read_json(folder_ / (run + "-again/imported.json")), read_json(folder_ / (run + "/imported.json")));
  }
}

// Ids that the configuration names as ends of a text end it, in addition to the known name in the tokenizer.
TEST_F(ImportedRuns, GenerateUntilAnyOfTheirEnds) {
  const std::string from = source("llama");
  ASSERT_EQ(import("plain", from).code, 0);
  const std::vector<std::string> words{"--prompt=a", "--count=3", "--temperature=0", "--json", "--quiet"};
  const auto ids = [&](const std::string& run) {
    std::vector<std::string> all{"generate", folder_ / run};
    all.insert(all.end(), words.begin(), words.end());
    const JsonValue printed = parse_json(expect_done(all).out, {}, "generate");
    return printed.at("samples").elements().at(0).at("ids").integers();
  };
  const std::vector<std::int64_t> made = ids("plain");
  ASSERT_EQ(made.size(), 3U);
  JsonValue config = read_json(from + "/config.json");
  config.set("eos_token_id", JsonValue::Array{made[0] == 9 ? 10 : 9, made[0]});
  write_file(from + "/config.json", write_json(config));
  ASSERT_EQ(import("second", from).code, 0);
  EXPECT_TRUE(ids("second").empty()) << "the second of two ends";
  // The ids of generation_config.json, if it has some.
  write_file(from + "/generation_config.json", R"({"eos_token_id": [7, 8]})");
  ASSERT_EQ(import("other", from).code, 0);
  EXPECT_EQ(ids("other"), made);
}

// Only the named parameters have optimiser state and change. A killed and resumed run ends with the same bytes.
TEST_F(ImportedRuns, TrainNamedParametersAlone) {
  const std::vector<std::string> more = {data(), "--train=pe.cope.*", "--optimiser.lr-scale=pe.*=10", "--save-every=2"};
  for (const char* run : {"one", "two"}) {
    ASSERT_EQ(import(run, source("neox"), {"--pe=rope+cope", "--pe.p-max=8"}).code, 0);
  }
  expect_done(training("one", more));
  std::vector<std::string> first = training("two", more);
  *std::ranges::find(first, "--steps=4") = "--steps=2";
  expect_done(first);
  expect_done({"resume", folder_ / "two", "--steps=4", "--threads=1", "--quiet"});
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
  expect_refused(run_tally({"resume", folder_ / "one", "--train=all", "--steps=6"}, folder_), 2,
                 "before the first step alone");
  expect_refused(run_tally({"convert", folder_ / "one", "--as=neox", folder_ / "x"}, folder_), 1,
                 "neox cannot say --pe cope+rope");
}

TEST_F(ImportedRuns, RefuseNamesThatNobodyHas) {
  ASSERT_EQ(import("run", source("gpt2"), {data()}).code, 0);
  expect_refused(run_tally(training("run", {"--train=pe.cope.*"}), folder_), 2, "'pe.cope.*' names no parameter");
  expect_refused(run_tally(training("run", {"--optimiser.lr-scale=head*=2"}), folder_), 2,
                 "'head*' names no parameter");
  expect_refused(run_tally(training("run", {"--optimiser.lr-scale=pe.*"}), folder_), 2, "no pattern with a factor");
  EXPECT_EQ(names_of_checkpoints(folder_ / "run").size(), 1U);
}

// Even if no checkpoint is left: the configuration states that the run was imported.
TEST_F(ImportedRuns, NeverBeginAtRandom) {
  ASSERT_EQ(import("run", source("gpt2"), {data()}).code, 0);
  EXPECT_TRUE(holds(read_file(folder_ / "run/config.json"), "\"imported\": true"));
  const std::string start = checkpoint("run", 0), kept = folder_ / "kept.safetensors";
  fs::copy_file(start, kept);
  const auto refused = [&] {
    for (const std::vector<std::string>& words :
         {training("run"), {"resume", folder_ / "run", "--quiet"}, {"resume", folder_ / "run", "--restart"}}) {
      expect_refused(run_tally(words, folder_), 1, "step-00000000.safetensors");
    }
  };
  fs::remove(start);
  refused();
  fs::remove(folder_ / "run/checkpoints");
  refused();
  fs::create_directory(folder_ / "run/checkpoints");
  fs::copy_file(kept, start);
  expect_done(training("run"));

  // A run with a newer checkpoint resumes from it. It restarts only with the imported weights.
  fs::remove(start);
  expect_done({"resume", folder_ / "run", "--steps=6", "--quiet"});
  const std::string last = read_file(checkpoint("run", 6));
  expect_refused(run_tally({"resume", folder_ / "run", "--restart"}, folder_), 1, "step-00000000.safetensors");
  EXPECT_TRUE(read_file(checkpoint("run", 6)) == last);
  fs::copy_file(kept, start);
  const std::string four = read_file(checkpoint("run", 4));
  expect_done({"resume", folder_ / "run", "--restart", "--steps=4", "--quiet"});
  EXPECT_TRUE(read_file(start) == read_file(kept));
  const auto weights = [](const std::string& path) {
    return SafetensorsFile::open(path).read("model.embedding.weight").to_vector<float>();
  };
  EXPECT_FALSE(fs::exists(checkpoint("run", 6)));
  EXPECT_NE(weights(checkpoint("run", 4)), weights(start));
  EXPECT_TRUE(read_file(folder_ / "run/checkpoints.old/step-00000006.safetensors") == last);
  // A run with this configuration is not an imported one.
  expect_done({"train", folder_ / "fresh", "--config", folder_ / "run/config.json", "--steps=1", "--quiet"});
  EXPECT_FALSE(holds(read_file(folder_ / "fresh/config.json"), "imported"));
}

// The optimiser has no state before the first step. The imported weights stay unchanged.
TEST_F(ImportedRuns, ChooseHowTheyAreTrainedBeforeTheFirstStep) {
  const std::vector<std::vector<std::string>> choices{{"--optimiser.name=sgd", "--optimiser.momentum=0.5"},
                                                      {"--model.dropout=0.1", "--optimiser.schedule=constant"},
                                                      {"--precision=bf16", "--micro-batch=1"}};
  for (std::size_t n = 0; n < choices.size(); ++n) {
    const std::string run = formatted("run{}", n);
    ASSERT_EQ(import(run, source("gpt2"), {data()}).code, 0);
    const Finished trained = expect_done(training(run, choices[n]));
    EXPECT_TRUE(holds(trained.out, "changed: ")) << trained.out;
  }
  EXPECT_EQ(read_json(folder_ / "run0/config.json").at("optimiser").string("name"), "sgd");
  expect_refused(run_tally({"resume", folder_ / "run0", "--optimiser.name=adamw", "--steps=6"}, folder_), 2,
                 "the optimiser of a run can change before the first step alone: optimiser.name sgd -> adamw");
  ASSERT_EQ(import("run", source("gpt2"), {data()}).code, 0);
  for (const auto& [option, message] :
       {std::pair{"--dtype=f64", "the model of a run cannot change: dtype f32 -> f64"},
        {"--model.heads=1", "the model of a run cannot change: model.heads"},
        {"--model.init=fan-in", "the run has its weights already, so this has no effect: model.init"}}) {
    expect_refused(run_tally(training("run", {option}), folder_), 2, message);
  }
  EXPECT_EQ(names_of_checkpoints(folder_ / "run").size(), 1U);
}

TEST_F(ImportedRuns, ReadBytesWhereThereIsNoTokenizer) {
  const std::string from = source("llama");
  fs::remove(from + "/tokenizer.json");
  const Finished imported = run_tally({"convert", from, folder_ / "run"}, folder_);
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_TRUE(holds(imported.out, "holds no tokenizer: texts are read and written as bytes")) << imported.out;
  EXPECT_EQ(read_file(folder_ / "run/tokenizer/tokenizer.json"), read_file(folder_ / "data/tokenizer.json"));
  expect_done({"generate", folder_ / "run", "--prompt=fu", "--count=3"});
  fs::remove(source("gpt2-wide") + "/tokenizer.json");
  const Finished small = import("small", source("gpt2-wide"));
  expect_refused(small, 1, "holds no tokenizer");
  expect_refused(small, 1, "--data names token files with the model's ids");
  EXPECT_FALSE(fs::exists(folder_ / "small"));
}

// Ids of the model itself, without a tokenizer or with one that is not read.
TEST_F(ImportedRuns, AreTrainedOnTokenFilesOfTheirOwnIds) {
  const std::string from = source("llama"), train = folder_ / "train.bin", validation = folder_ / "val.bin";
  std::string ids;
  for (int t = 0; t < 400; ++t) {  // all 264 ids of the model; the tokenizer has 257
    ids += {static_cast<char>(t * 5 % 264 % 256), static_cast<char>(t * 5 % 264 / 256)};
  }
  write_file(train, ids);
  write_file(validation, ids.substr(0, 160));
  const std::vector<std::string> files{"--data=" + train, "--task.validation=" + validation};
  const auto expect_trained = [&](const std::string& run, const std::vector<std::string>& more) {
    expect_done(training(run, more));
    const Finished evaluated = expect_done({"eval", folder_ / run, "--split=validation"});
    EXPECT_TRUE(holds(evaluated.out, "of 79 tokens")) << evaluated.out;
    EXPECT_FALSE(holds(evaluated.out, "bits per byte")) << evaluated.out;
    expect_done({"resume", folder_ / run, "--steps=6", "--quiet"});
  };
  // The model has a tokenizer, which is kept for prompts.
  ASSERT_EQ(import("known", from, files).code, 0);
  expect_done(training("known"));
  expect_done({"eval", folder_ / "known", "--split=validation"});
  expect_done({"generate", folder_ / "known", "--prompt=fu", "--count=3"});
  fs::rename(folder_ / "known", folder_ / "moved");
  expect_done({"generate", folder_ / "moved", "--prompt=fu", "--count=3"});

  write_file(from + "/tokenizer.json", R"({"model": {"type": "Unigram"}})");
  expect_refused(import("refused", from), 1, "--data names token files with the model's ids");
  const Finished unread = run_tally({"convert", from, folder_ / "unread", files[0], files[1]}, folder_);
  ASSERT_EQ(unread.code, 0) << unread.err;
  EXPECT_TRUE(holds(unread.out, "the model's tokenizer is not read")) << unread.out;
  expect_trained("unread", {});
  fs::remove(from + "/tokenizer.json");
  ASSERT_EQ(import("none", from, files).code, 0);
  expect_trained("none", {});
  // Imported with bytes instead of a tokenizer.
  ASSERT_EQ(import("bytes", from).code, 0);
  expect_trained("bytes", files);
  EXPECT_EQ(read_file(checkpoint("bytes", 4)), read_file(checkpoint("none", 4)));
}

// The options for reading token files also apply to export, with the model's tokenizer and without one.
TEST_F(ImportedRuns, AreWrittenBackFromTokenFilesOfANamedType) {
  const std::string from = source("llama");
  std::string ids;
  for (int t = 0; t < 200; ++t) ids += {static_cast<char>(t * t % 250), '\0', '\0', '\0'};
  write_file(folder_ / "train.bin", ids);
  write_file(folder_ / "val.bin", ids.substr(0, 160));
  const std::vector<std::string> files{"--data=" + (folder_ / "train.bin"),
                                       "--task.validation=" + (folder_ / "val.bin"), "--token-type=uint32",
                                       "--end-token=7"};
  for (const std::string run : {"with", "without"}) {
    ASSERT_EQ(import(run, from, files).code, 0);
    expect_done(training(run));
    const std::string out = folder_ / (run + "-back");
    expect_done({"convert", folder_ / run, "--as=llama", out, "--quiet"});
    EXPECT_EQ(fs::exists(out + "/tokenizer.json"), run == "with");
    if (run == "with") {
      EXPECT_EQ(read_file(out + "/tokenizer.json"), read_file(from + "/tokenizer.json"));
    }
    fs::remove(from + "/tokenizer.json");
  }
}

// A prepared text, an imported model and token files of its ids choose the same token: a known name, then eos_token of
// tokenizer_config.json. Only a model has config.json as a third place.
TEST_F(ImportedRuns, EndTextsWithTheTokenOfPreparedTexts) {
  const std::string from = source("llama"), ids = std::string(400, '\1');
  write_file(folder_ / "train.bin", ids);
  write_file(folder_ / "val.bin", ids);
  const std::vector<std::string> files{"--data=" + (folder_ / "train.bin"),
                                       "--task.validation=" + (folder_ / "val.bin")};
  const auto end_in = [&](const std::string& folder) {
    return read_json(folder + "/manifest.json").at("tokenizer").integer("end_of_text");
  };
  const auto end_of_files = [&] { return read_json(folder_ / "files/config.json").at("task").string("end-token"); };
  const auto import_both = [&](const std::vector<std::string>& more = {}) {
    for (const char* run : {"run", "files"}) fs::remove_all(folder_ / run);
    const Finished imported = import("run", from, more);
    ASSERT_EQ(imported.code, 0) << imported.err;
    const Finished of_files = import("files", from, files);
    ASSERT_EQ(of_files.code, 0) << of_files.err;
    expect_done(training("files"));
  };
  const auto prepared_end = [&] {
    fs::remove_all(folder_ / "own");
    expect_done({"prepare", folder_ / "own", folder_ / "texts", "--tokenizer=" + from + "/tokenizer.json",
                 "--validation-part=0.3", "--test-part=0", "--quiet"});
    return end_in(folder_ / "own");
  };
  // A known name comes before eos_token_id = 0 of config.json.
  import_both();
  EXPECT_EQ(end_in(folder_ / "run/tokenizer"), 256);
  EXPECT_EQ(prepared_end(), 256);
  EXPECT_EQ(end_of_files(), "") << "the known name is found in the tokenizer";

  std::string tokenizer = read_file(from + "/tokenizer.json");
  const std::string known = "<|endoftext|>";
  for (std::size_t at; (at = tokenizer.find(known)) != std::string::npos;) tokenizer.replace(at, known.size(), "<end>");
  fs::remove(from + "/tokenizer.json");
  write_file(from + "/tokenizer.json", tokenizer);
  write_file(from + "/tokenizer_config.json", R"({"eos_token": "<end>"})");
  import_both();
  EXPECT_EQ(end_in(folder_ / "run/tokenizer"), 256);
  EXPECT_EQ(prepared_end(), 256);
  EXPECT_EQ(end_of_files(), "<end>");
  ASSERT_EQ(import("prepared", from, {"--data=" + (folder_ / "own")}).code, 0);

  fs::remove(from + "/tokenizer_config.json");
  import_both();
  EXPECT_EQ(end_in(folder_ / "run/tokenizer"), 0);
  EXPECT_EQ(end_of_files(), "0");

  // Without any, a model needs a name and token files do not.
  JsonValue config = read_json(from + "/config.json");
  write_file(from + "/config.json", write_json(config.set("eos_token_id", JsonValue())));
  expect_refused(import("refused", from), 1, "--end-token names the token that ends a document");
  expect_refused(import("refused", from, {"--end-token=<stop>"}), 1, "'<stop>' is no special token");
  EXPECT_FALSE(fs::exists(folder_ / "refused") || fs::exists(folder_ / "refused.partial"));
  for (const std::string name : {"<end>", "256"}) {
    import_both({"--end-token=" + name});
    EXPECT_EQ(end_in(folder_ / "run/tokenizer"), 256);
    EXPECT_EQ(end_of_files(), "");
    expect_done({"generate", folder_ / "run", "--count=2"});
  }
}

// A tokenizer that tally does not read, such as one with merge dropout, is replaced by the tokenizer of the data.
TEST_F(ImportedRuns, TakeTheTokenizerOfTheDataWhereTheirOwnIsNotRead) {
  const std::string from = source("neox");
  JsonValue tokenizer = read_json(from + "/tokenizer.json"), model = tokenizer.at("model");
  tokenizer.set("model", model.set("dropout", 0.5));
  write_file(from + "/tokenizer.json", write_json(tokenizer));
  expect_refused(import("none", from), 1, "model.dropout");
  const Finished imported = run_tally({"convert", from, folder_ / "run", data()}, folder_);
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_TRUE(holds(imported.out, "the model's tokenizer is not read, so that of ")) << imported.out;
  EXPECT_TRUE(holds(imported.out, "model.dropout")) << imported.out;
  expect_done({"eval", folder_ / "run", "--split=validation"});
}

TEST_F(ImportedRuns, AreNotHalfMade) {
  const std::string from = source("gpt2");
  const auto refused = [&](const std::string& message, const std::vector<std::string>& more = {}) {
    expect_refused(import("run", from, more), 1, message);
    EXPECT_FALSE(fs::exists(folder_ / "run") || fs::exists(folder_ / "run.partial"));
  };
  fs::rename(from + "/tokenizer.json", folder_ / "kept.json");
  write_file(from + "/tokenizer.json", "{}");
  refused("tokenizer.json");
  fs::copy_file(folder_ / "kept.json", from + "/tokenizer.json", fs::copy_options::overwrite_existing);
  expect_done({"prepare", folder_ / "other", folder_ / "texts", "--vocabulary=260", "--validation-part=0.3",
               "--test-part=0", "--quiet"});
  refused("another tokenizer", {"--data=" + (folder_ / "other")});
  fs::remove_all(from);
  refused("config.json");
  EXPECT_EQ(import("run", source("gpt2"), {"--pe=cope"}).code, 2);
  EXPECT_EQ(import("run", source("gpt2"), {"--model.width=9"}).code, 2);
  fs::copy_file(folder_ / "kept.json", source("gpt2-wide") + "/tokenizer.json", fs::copy_options::overwrite_existing);
  expect_refused(import("run", source("gpt2-wide")), 1, "the tokenizer has 257 tokens, and the model (vocab_size) 40");
}

}  // namespace import_test
}  // namespace tally::testing
