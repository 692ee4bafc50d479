// Targets of --out and --profile: never a file that a run keeps, and checked before the work starts.
#include <gtest/gtest.h>

#include "tasks/foreign/foreign_model.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::output_test {

class Outputs : public Program {
 protected:
  void SetUp() override { done(tiny("run", "none")); }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all = checkpoints_of(folder_ / "run");
    for (const char* name : {"config.json", "metrics.jsonl", "results.json", "imported.json"})
      all[name] = file(std::string("run/") + name);
    return all;
  }
};

TEST_F(Outputs, WhatARunKeepsIsNotWrittenOver) {
  write_imported(folder_ / "run", {});
  const auto before = files();
  std::filesystem::create_symlink(folder_ / "run/config.json", folder_ / "link");
  for (const std::string out :
       {"run/config.json", "run/metrics.jsonl", "run/results.json", "run/varied.json", "run/imported.json",
        "run//./config.json", "run/checkpoints/step-00000004.safetensors", "run/checkpoints/new", "link"}) {
    const std::string kept = "'" + out + "' is kept by";
    refused({{"convert run " + out, kept},
             {tiny("new", "none", "--profile=" + out), kept},
             {"resume run --profile " + out, kept}});
  }
  EXPECT_FALSE(exists("new"));
  // Other existing files may be replaced, any number of times.
  for (int n = 0; n < 2; ++n) {
    for (const std::string out : {"run/weights.safetensors", "weights"}) {
      done("convert run " + out);
      EXPECT_TRUE(holds(file(out), "tally weights")) << out;
    }
    done("report run --out run/curves.svg");
  }
  EXPECT_TRUE(files() == before);
}

TEST_F(Outputs, FilesOfATextAModelOrASweepAreNotWrittenOver) {
  write_file(folder_ / "text.txt", "one text of a few words\n");
  done("prepare data text.txt --tokenizer=bytes --validation-part=0 --quiet");
  std::filesystem::create_directory(folder_ / "model");
  write_file(folder_ / "model/config.json", "{\"model_type\": \"llama\"}\n");
  write_file(folder_ / "sweep.json", "{}");
  for (const char* name : {"model/model.safetensors", "model/tokenizer.json"}) write_file(folder_ / name, "a model's");
  for (const std::string out : {"data/tokenizer.json", "data/train.bin", "data/manifest.json", "model/config.json",
                                "model/model.safetensors", "model/tokenizer.json", "sweep.json"}) {
    const std::string before = file(out), kept = "'" + out + "' is kept by";
    refused({{"convert run " + out, kept}, {"tokenizer encode data text.txt --out " + out, kept}});
    EXPECT_EQ(file(out), before);
  }
  // A new file may be written. A config.json of another kind protects only itself.
  done("convert run model/new.safetensors");
  for (const std::string text : {"{\"colour\": 1}", "{", "[]"}) {
    write_file(folder_ / "model/config.json", text);
    refused("convert run model/config.json", "is kept by");
    for (int n = 0; n < 2; ++n) done("report run --out model/curves.svg");
  }
}

TEST_F(Outputs, AProfileIsRefusedBeforeTheTraining) {
  const std::string metrics = file("run/metrics.jsonl");
  refused({{tiny("new", "none", "--profile=missing/trace.json"), "missing/trace.json"},
           {tiny("new", "none", "--profile=run"), "not a regular file"},
           {"resume run --steps=6 --profile missing/trace.json", "missing/trace.json"}},
          1);
  for (const std::string name : {"new/config.json", "new/checkpoints/step-00000004.safetensors", "new"}) {
    refused(tiny("new", "none", "--profile=" + name), "'" + name + "' is ");
  }
  EXPECT_FALSE(exists("new"));
  EXPECT_EQ(file("run/metrics.jsonl"), metrics);
  // In the folder that training creates.
  done(tiny("new", "none", "--profile=new/trace.json"));
  EXPECT_TRUE(holds(file("new/trace.json"), "traceEvents"));
}

TEST_F(Outputs, AnEndingSaysWhatIsWritten) {
  const std::string sequences = "describe flip-flop --sequences=10 --out ";
  refused({{"report run --out x.png", "end in .svg"},
           {"report run --out x", "end in .svg"},
           {sequences + "x.csv", "end in .npy"}});
  for (const char* name : {"x.png", "x", "x.csv"}) EXPECT_FALSE(exists(name));
  done("report run --out x.SVG");
  EXPECT_TRUE(file("x.SVG").starts_with("<svg"));
  done(sequences + "x.NPY");
  EXPECT_TRUE(file("x.NPY").starts_with("\x93NUMPY"));
}

}  // namespace tally::testing::output_test
