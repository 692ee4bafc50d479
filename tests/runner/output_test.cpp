// Targets of --out and --profile: never a file that a run keeps, and checked before the work starts.
#include <gtest/gtest.h>

#include "tasks/foreign/foreign_model.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace output_test {

class Outputs : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run_tally(tiny_training(run_, "none"), folder_).code, 0); }

  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all = checkpoints_of(run_);
    for (const char* name : {"config.json", "metrics.jsonl", "results.json", "imported.json"})
      all[name] = read_file(run_ + "/" + name);
    return all;
  }

  void expect_refused(const std::vector<std::string>& words, const std::string& message, int code = 2) {
    const Finished result = run_tally(words, folder_);
    std::string line;
    for (const std::string& word : words) line += " " + word;
    EXPECT_EQ(result.code, code) << line;
    EXPECT_TRUE(holds(result.err, message)) << line << "\n" << result.err;
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(Outputs, WhatARunKeepsIsNotWrittenOver) {
  write_imported(run_, {.family = "llama", .positions = 0, .config = JsonValue::object(), .generation = {}});
  const auto before = files();
  std::filesystem::create_symlink(run_ + "/config.json", folder_ / "link");
  for (const std::string& out :
       {run_ + "/config.json", run_ + "/metrics.jsonl", run_ + "/results.json", run_ + "/varied.json",
        run_ + "/imported.json", run_ + "//./config.json", run_ + "/checkpoints/step-00000004.safetensors",
        run_ + "/checkpoints/new", folder_ / "link"}) {
    expect_refused({"convert", run_, out}, "'" + out + "' is kept by what was trained or prepared in '" + run_ + "'");
    expect_refused(tiny_training(folder_ / "new", "none", {"--profile=" + out}), "'" + out + "' is kept by");
    expect_refused({"resume", run_, "--profile", out}, "'" + out + "' is kept by");
    EXPECT_TRUE(files() == before) << out;
  }
  expect_refused({"describe", "flip-flop", "--sequences=10", "--out", run_ + "/metrics.jsonl"}, "is kept by");
  EXPECT_TRUE(files() == before);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  // Other existing files may be replaced, any number of times.
  for (int n = 0; n < 2; ++n) {
    for (const std::string& out : {run_ + "/weights.safetensors", folder_ / "weights"}) {
      EXPECT_EQ(run_tally({"convert", run_, out}, folder_).code, 0) << out;
      EXPECT_TRUE(holds(read_file(out), "tally weights")) << out;
    }
    EXPECT_EQ(run_tally({"report", run_, "--out", run_ + "/curves.svg"}, folder_).code, 0);
  }
  EXPECT_TRUE(files() == before);
}

TEST_F(Outputs, APreparedTextIsNotWrittenOver) {
  const std::string text = folder_ / "text.txt", data = folder_ / "data";
  write_file(text, "one text of a few words\n");
  ASSERT_EQ(run_tally({"prepare", data, text, "--tokenizer=bytes", "--validation-part=0", "--quiet"}, folder_).code, 0);
  for (const std::string name : {"tokenizer.json", "train.bin", "manifest.json"}) {
    const std::string out = data + "/" + name, before = read_file(out);
    ASSERT_NE(before, "") << name;
    expect_refused({"convert", run_, out}, "'" + out + "' is kept by");
    expect_refused({"tokenizer", "encode", data, text, "--out", out}, "'" + out + "' is kept by");
    EXPECT_EQ(read_file(out), before);
  }
}

TEST_F(Outputs, AModelOfAnotherLibraryIsNotWrittenOver) {
  const std::string model = folder_ / "model";
  std::filesystem::create_directory(model);
  write_file(model + "/config.json", "{\"model_type\": \"llama\"}\n");
  for (const std::string name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const std::string out = model + "/" + name;
    if (name != "config.json") write_file(out, "of the model");
    const std::string before = read_file(out);
    expect_refused({"convert", run_, out}, "'" + out + "' is kept by");
    EXPECT_EQ(read_file(out), before);
  }
  // A new file may be written. A config.json of another kind protects only itself.
  EXPECT_EQ(run_tally({"convert", run_, model + "/new.safetensors"}, folder_).code, 0);
  for (const std::string text : {"{\"colour\": 1}", "{", "[]"}) {
    write_file(model + "/config.json", text);
    expect_refused({"convert", run_, model + "/config.json"}, "is kept by");
    EXPECT_EQ(run_tally({"report", run_, "--out", model + "/curves.svg"}, folder_).code, 0);
    EXPECT_EQ(run_tally({"report", run_, "--out", model + "/curves.svg"}, folder_).code, 0);
  }
}

TEST_F(Outputs, ARecordOfASweepIsNotWrittenOver) {
  const std::string record = folder_ / "sweep.json";
  write_file(record, "{}");
  expect_refused({"convert", run_, record}, "'" + record + "' is kept by");
  EXPECT_EQ(read_file(record), "{}");
}

TEST_F(Outputs, AProfileIsRefusedBeforeTheTraining) {
  const std::string run = folder_ / "new";
  expect_refused(tiny_training(run, "none", {"--profile=" + (folder_ / "missing/trace.json")}), "missing/trace.json",
                 1);
  expect_refused(tiny_training(run, "none", {"--profile=" + run_}), "not a regular file", 1);
  for (const char* name : {"/config.json", "/checkpoints/step-00000004.safetensors", ""}) {
    expect_refused(tiny_training(run, "none", {"--profile=" + run + name}), "'" + run + name + "' is ");
  }
  EXPECT_FALSE(std::filesystem::exists(run));
  const std::string metrics = read_file(run_ + "/metrics.jsonl");
  expect_refused({"resume", run_, "--steps=6", "--profile", folder_ / "missing/trace.json"}, "missing/trace.json", 1);
  EXPECT_EQ(read_file(run_ + "/metrics.jsonl"), metrics);
  // In the folder that training creates.
  EXPECT_EQ(run_tally(tiny_training(run, "none", {"--profile=" + run + "/trace.json"}), folder_).code, 0);
  EXPECT_TRUE(holds(read_file(run + "/trace.json"), "traceEvents"));
}

TEST_F(Outputs, AnEndingSaysWhatIsWritten) {
  expect_refused({"report", run_, "--out", folder_ / "x.png"}, "end in .svg");
  expect_refused({"report", run_, "--out", folder_ / "x"}, "end in .svg");
  expect_refused({"describe", "flip-flop", "--sequences=10", "--out", folder_ / "x.csv"}, "end in .npy, .jsonl, .txt");
  for (const char* name : {"x.png", "x", "x.csv"}) EXPECT_FALSE(std::filesystem::exists(folder_ / name));
  EXPECT_EQ(run_tally({"report", run_, "--out", folder_ / "x.SVG"}, folder_).code, 0);
  EXPECT_TRUE(read_file(folder_ / "x.SVG").starts_with("<svg"));
  EXPECT_EQ(run_tally({"describe", "flip-flop", "--sequences=10", "--out", folder_ / "x.NPY"}, folder_).code, 0);
  EXPECT_TRUE(read_file(folder_ / "x.NPY").starts_with("\x93NUMPY"));
  EXPECT_EQ(run_tally({"describe", "flip-flop", "--sequences=10", "--out", folder_ / "x.JsonL"}, folder_).code, 0);
  EXPECT_TRUE(read_file(folder_ / "x.JsonL").starts_with("{\"index\":0"));
}

}  // namespace output_test
}  // namespace tally::testing
