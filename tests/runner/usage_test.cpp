// Command lines: wrong ones and wrong configurations (exit code, message, and that nothing is written); options of all
// commands; targets of --out and --profile, which are never a file that a run keeps; and untrusted names, whose control
// characters never reach the terminal unescaped.
#include <gtest/gtest.h>

#include <variant>

#include "tasks/command_line/command.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/runs/preset.hpp"
#include "tests/devices.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::usage_test {

class Usage : public Program {
 protected:
  void TearDown() override { EXPECT_FALSE(exists("new")) << "a wrong command line writes nothing"; }
  // Cases of a line with these options.
  static std::vector<Refusal> with(const std::string& line, std::vector<Refusal> cases) {
    for (Refusal& one : cases) one.line.insert(0, line);
    return cases;
  }
  // One space between words: the help wraps long lines.
  std::string help(const std::string& line) {
    std::istringstream text(done(line));
    std::string flat;
    for (std::string word; text >> word;) flat += word + " ";
    return flat;
  }

  const std::string train_ = "train new --task=flip-flop --pe=cope ", sweep_ = "sweep new --task=flip-flop --pe=cope ";
};

TEST_F(Usage, HelpAndVersion) {
  EXPECT_EQ(tally("").code, 2);
  for (const std::string word : {"--help", "-h", "help"}) {
    expect_parts(done(word), {"train", "resume", "eval", "describe", "check"});
  }
  EXPECT_EQ(done("--version"), "tally " TALLY_VERSION "\n");
  expect_parts(help("train --help"), {"Run:", "Task flip-flop:", "Model:", "Optimiser:", "--optimiser.lr,--lr=0.001",
                                      "--model.width,--width=256", "--device=cpu", "--help --pe cope",
                                      "settings: " + preset_names() + " (", "mean of gradients (in [0, 1))"});
  expect_parts(help("train --help --pe cope --task counting"),
               {"--pe.cope.p-max,--pe.p-max=64", "--task.vars=1", "settings: brief, paper, quick ("});
  for (const std::string command : {"train", "sweep"}) {
    EXPECT_FALSE(holds(help(command + " --help --pe rope"), "--help --pe cope")) << command;
  }
  expect_parts(help("describe --help counting"),
               {"settings of the task: brief, paper, quick", "with --sequences one a line"});
  for (const Command& command : commands()) {
    const std::string text = done(std::string(command.name) + " --help");
    const std::string begin = formatted("{}\n\nExamples:\n", command.summary);
    EXPECT_TRUE(text.starts_with(begin)) << text;
    const std::string example = formatted("  tally {}", command.name);
    std::size_t count = 0;
    for (std::size_t at = begin.size() - 1; (at = text.find(example, at + 1)) != text.npos;) ++count;
    EXPECT_EQ(count, 3U) << text;
  }
}

TEST_F(Usage, ShortNamesAndOtherSpellingsOfOptions) {
  const JsonValue config =
      json(train_ + "--length=32 --lr=0.5 --width=16 --layers=1 --heads=2 --optimizer.beta1=0.5 --dry-run")
          .at("config");
  EXPECT_EQ(config.at("task").integer("length"), 32);
  EXPECT_EQ(config.at("optimiser").real("lr"), 0.5);
  EXPECT_EQ(config.at("optimiser").real("beta1"), 0.5);
  EXPECT_EQ(config.at("model").integer("width"), 16);
  EXPECT_EQ(config.at("model").integer("heads"), 2);
  expect_parts(done(sweep_ + "--set optimizer.lr=0.5,0.1 --dry-run --seeds=1"), {"cope-optimiser.lr=0.5-seed1"});
  EXPECT_EQ(tally(train_ + "--lr=0.5 --optimiser.lr=0.4").code, 2) << "one option, twice";
}

TEST_F(Usage, WrongCommandsAndOptionsNameTheNearest) {
  refused({{"trian", "did you mean 'train'?"},
           {"list tasks", "unknown command 'list'"},
           {"train", "RUN is required"},
           {"reproduce", "NAME is required: table or figure: "},
           {"train '' --task=flip-flop --pe=cope", "the name of the run folder is empty"},
           {"sweep '' --task=flip-flop --pe=cope", "the name of the folder for the runs is empty"},
           {"train new --task=flipflop --pe=cope", "did you mean 'flip-flop'?"},
           {"train new --task=flip-flop --pe=cop", "did you mean 'cope'?"},
           {"train new --pe=cope", "--task is missing"},
           {"train new --task=flip-flop", "--pe is missing"},
           {"bench stp", "stp not in {step,attention}"},
           {"describe ropes", "did you mean 'rope'?"}});
  refused(with(train_, {{"--preset=papre", "it has demo, paper, quick; did you mean 'paper'?"},
                        {"--optimiser.name=adm", "did you mean 'adam'?"},
                        {"--model.widht=8", "did you mean '--model.width'?"},
                        {"--pe.pmax=8", "did you mean '--pe.p-max'?"},
                        {"--steps", "--steps needs a value"},
                        {"--steps=1 --steps=2", "--steps"},
                        {"--threads=many", "--threads"},
                        {"--device=gpu", "'gpu' is not a device"},
                        {"--compile", "unknown option '--compile'; 'tally train --help' lists all"},
                        // Names of other programs lead to the option.
                        {"--seq-len 1", "did you mean '--length'?"},
                        {"--epochs 1", "did you mean '--steps'?"},
                        {"--gpu 1", "did you mean '--device'?"},
                        {"--learning-rate 1", "did you mean '--lr'?"},
                        {"--batch_size 1", "did you mean '--batch'?"},
                        {"--d_model 1", "did you mean '--width'?"},
                        {"--dropout 1", "did you mean '--model.dropout'?"},
                        {"--encoding 1", "did you mean '--pe'?"},
                        {"--model.n_embd 1", "did you mean '--width'?"}}));
  refused(with(sweep_ + "--set ", {{"foo=1", "unknown option 'foo'; 'tally train --help'"},
                                   {"modle.width=8", "did you mean 'model.width'?"},
                                   {"pe.pmax=8", "did you mean 'pe.cope.p-max'?"},
                                   {"n_layer=1,2", "did you mean 'model.layers'?"}}));
}

TEST_F(Usage, AWarmUpOfAPresetIsShortenedForAShortRun) {
  const std::string few = train_ + "--preset=quick --steps=5 --dry-run";
  expect_parts(done(few), {"note: the warm-up of preset quick, 50 steps, is shortened to 1 for a run of 5"});
  refused(few + " --optimiser.warmup=6", "warmup 6 is longer than the run of 5 steps");
}

TEST_F(Usage, PrepareWithItsFoldersSwappedNamesTheRightForm) {
  std::filesystem::create_directory(folder_ / "texts");
  write_file(folder_ / "texts/a.txt", "a text");
  const std::string right = "the output comes first: tally prepare target texts";
  refused({{"prepare texts target", right}, {"prepare texts target --force", right}});
  EXPECT_TRUE(exists("texts/a.txt"));
}

TEST_F(Usage, OptionsOfAnotherUseOfTheTokenizerAreRefused) {
  write_file(folder_ / "text", "low lower lowest low lower");
  const std::string why = " has no effect with WHAT ";
  refused({{"tokenizer show bytes --text=abc --out new", "--out" + why + "show; it is for encode or decode"},
           {"tokenizer train new text --out new", "--out" + why + "train"},
           {"tokenizer encode bytes --text=abc --vocabulary=300", "--vocabulary" + why + "encode"},
           {"tokenizer show bytes --min-count=3", "--min-count" + why + "show; it is for train"},
           {"tokenizer decode bytes --text=97 --specials=<s>", "--specials" + why + "decode"}});
  done("tokenizer show bytes --text=abc");
  // A folder with tokenizer.json is one that other libraries load; an existing configuration stays.
  const std::string training = "tokenizer train tokenizer.json text --vocabulary=260";
  done(training);
  EXPECT_EQ(file_json("tokenizer_config.json").string("eos_token"), "<|endoftext|>");
  write_file(folder_ / "tokenizer_config.json", "{}");
  expect_parts(done(training), {"tokenizer_config.json: stays as it is"});
  EXPECT_EQ(file("tokenizer_config.json"), "{}");
}

TEST_F(Usage, ADeviceThatIsNotThereIsNamed) {
  // A number that no machine has, also if there is a GPU.
  refused(train_ + "--device=cuda:99", cuda_devices().empty() ? "no CUDA" : "there is no device 99: this machine has ",
          1);
  const std::string bench = "bench step --length 4 --batch 1 --model.width 8 --precision ";
  refused(bench + "tf32", "--precision tf32 is for --device cuda and cuda-host");
  done(bench + "tf32 --device cuda-host");
  done(bench + "bf16");
}

TEST_F(Usage, WrongValuesAreRefusedBeforeAnythingIsWritten) {
  refused(with(train_,
               {{"--model.width=8x", "width must be an integer, got '8x'"},
                {"--model.heads=3", "width 256 is not divisible by 3 heads"},
                {"--model.norm-eps=1e-30", "norm-eps = 1e-30 must be 0 or at least 1e-20"},
                {"--model.width=1 --model.heads=1", "norm = layer makes 0 of a width of 1"},
                {"--optimiser.schedule=linear --optimiser.cooldown=0.5",
                 "cooldown = 0.5 has no effect with schedule = linear; it is for wsd and inverse-root"},
                {"--batch=8 --micro-batch=9", "micro-batch 9 is more than the batch of 8"},
                {"--batch=8 --micro-batch=2 --micro-batches=4",
                 "micro-batch 2 and micro-batches 4 say the same of a batch; give one of them"},
                {"--batch=9 --micro-batches=4",
                 "a batch of 9 has no 4 micro-batches of one size; with 3 sequences each there are 3"},
                {"--optimiser.warmup=2000",
                 "warmup 2000 is longer than the run of 1000 steps; a shorter one is set with --optimiser.warmup"}}));
}

TEST_F(Usage, WrongConfigurationFiles) {
  const std::string run = R"("task": {"name": "flip-flop"}, "pe": "cope")";
  for (const auto& [content, message] :
       std::vector<Refusal>{{"{" + run + R"(, "modle": {}})", "did you mean 'model'?"},
                            {"{" + run + R"(, "model": {"widht": 8}})", "did you mean 'model.width'?"},
                            {"{" + run + R"(, "model": {"width": "8"}})", "'model.width' must be an integer, not a"},
                            {"{" + run + R"(, "model": {"heads": 7}})", "not divisible by 7 heads"},
                            {"{" + run + R"(, "run": {"length": 64}})", "unknown key 'run.length'"},
                            {R"({"task": {"name": "flip-flop"}})", "pe"},
                            {R"({"task": {"name": "flipflop"}, "pe": "cope"})", "did you mean 'flip-flop'?"},
                            {std::string(100'000, '['), "nested deeper"}}) {
    write_file(folder_ / "config.json", content);
    refused({{"train new --config config.json", message}, {"train new --config config.json", "config.json"}});
  }
  for (const std::string path : {"missing.json", "."}) EXPECT_EQ(tally("train new --config " + path).code, 2) << path;
}

// Errors in a run's own config.json.
TEST_F(Usage, WrongConfigurationsOfRunsAreNamed) {
  done(tiny("run", "cope"));
  const std::string good = file("run/config.json");
  for (const auto& [from, to] : {std::pair{"\"heads\": 2", "\"haeds\": 2"},
                                 {"\"heads\": 2", "\"heads\": 3"},
                                 {"\"length\": 16", "\"length\": 15"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos);
    write_file(folder_ / "run/config.json", bad.replace(bad.find(from), std::string_view(from).size(), to));
    for (const std::string line : {"eval run", "resume run", "inspect run", "convert run new"}) {
      refused(line, "run/config.json", 1);
    }
  }
}

TEST_F(Usage, FoldersThatHoldSomethingAreRefused) {
  std::filesystem::create_directory(folder_ / "run");  // an empty folder is fine
  done(tiny("run", "none"));
  const auto before = checkpoints_of(folder_ / "run");
  refused({{tiny("run", "rope"), "holds a run already"}, {tiny("run", "rope"), "--force"}}, 1);
  EXPECT_TRUE(checkpoints_of(folder_ / "run") == before);
  for (const char* aside : {"run.old", "run.old-2"}) {
    done(tiny("run", "rope", "--force"));
    EXPECT_TRUE(exists(aside));
  }
  EXPECT_TRUE(checkpoints_of(folder_ / "run.old") == before);

  std::filesystem::create_directory(folder_ / "other");
  for (const char* path : {"other/thesis.txt", "file"}) write_file(folder_ / path, "mine");
  for (const std::string name : {"other", "file"}) refused(tiny(name, "none"), name, 1);
  EXPECT_EQ(file("file"), "mine");
  done(tiny("other", "none", "--force"));
  EXPECT_EQ(file("other.old/thesis.txt"), "mine");
}

TEST_F(Usage, RunsThatAreNoneAreNamed) {
  for (const char* name : {"empty", "broken"}) std::filesystem::create_directory(folder_ / name);
  write_file(folder_ / "broken/config.json", "{\"format\": 1");
  for (const std::string command : {"resume ", "eval "}) {
    refused({{command + "missing", "there is no folder"},
             {command + "empty", "has no config.json"},
             {command + "broken", "config.json"}},
            1);
  }
  EXPECT_EQ(shell("exec '" TALLY_RUNNER "' describe > /dev/full").code, 1) << "an output that cannot be written";
}

// Another value than the default.
void change(const Option& option) {
  if (bool* const* flag = std::get_if<bool*>(&option.target)) {
    **flag = true;
  } else if (std::int64_t* const* number = std::get_if<std::int64_t*>(&option.target)) {
    **number += 1;
  } else {
    std::string& text = *std::get<std::string*>(option.target);
    text = option.rules.allowed.empty() ? text + "-other" : option.rules.allowed.back();
  }
}

class SharedOptions : public Program {};

TEST_F(SharedOptions, AllReachTheRunsOfASweep) {
  CommonOptions given;
  std::vector<std::string> before = given.words();
  for (const Option& option : given.options()) {
    SCOPED_TRACE(option.names);
    change(option);
    EXPECT_NE(given.words(), before) << "the words for a child do not tell it";
    before = given.words();
  }
  CommandLine child(given.words());
  EXPECT_EQ(child.parse("resume", "", ""), "");
  EXPECT_EQ(child.common.words(), given.words());
}

TEST_F(SharedOptions, OfASweepAreThoseOfOneRun) {
  const std::string there = " --device=cuda-host --precision=tf32 --debug-nan";
  done(tiny("there", "cope", "--seed=1" + there));
  done(tiny("here", "cope", "--seed=1"));
  done(tiny("sweep", "cope", "--seeds=1" + there, "sweep"));
  EXPECT_TRUE(checkpoints_of(folder_ / "sweep/cope-seed1") == checkpoints_of(folder_ / "there"));
  EXPECT_FALSE(checkpoints_of(folder_ / "sweep/cope-seed1") == checkpoints_of(folder_ / "here"));
}

// With rounded matmul operands, for any number of threads; the result differs from f32.
TEST_F(SharedOptions, InBf16TheCpuTrainsToTheSameBytesToo) {
  const auto trained = [&](const std::string& name, const std::string& options) {
    done(tiny(name, "cope", options));
    return checkpoints_of(folder_ / name);
  };
  const auto one = trained("one", "--precision=bf16 --threads=1");
  EXPECT_TRUE(trained("three", "--precision=bf16 --threads=3") == one);
  EXPECT_FALSE(trained("f32", "") == one);
}

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
}

const std::string evil = "na\x1b[31mme\nnext\x9b\xff";
const std::string escaped = "na\\x1b[31mme\\nnext\\x9b\\xff";

// Whether the only control characters are line ends.
bool is_safe(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (' ' <= c && c <= '~'); });
}

TEST(Printable, ControlCharactersAreEscapedOnce) {
  EXPECT_EQ(printable(evil), escaped);
  EXPECT_EQ(printable(printable(evil)), escaped);
  EXPECT_EQ(printable("C:\\x, äöü"), "C:\\x, äöü");
  EXPECT_EQ(printable("\\\x07\\"), "\\\\x07\\");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable(""), "");
}

class PrintedNames : public Program {};

TEST_F(PrintedNames, InErrorsOfTheCommandLine) {
  const std::string train = "train run --task=flip-flop --pe=cope ";
  for (const std::string& line :
       {evil, "train run --pe=cope --task=" + evil, "train run --task=flip-flop --pe=" + evil,
        train + "--preset=" + evil, train + "--" + evil + "=3", train + "--optimiser.name=" + evil,
        train + "--steps=" + evil, train + "--threads=" + evil, "train run --config=" + evil, "eval " + evil,
        "resume " + evil, "report " + evil, "inspect " + evil, "describe " + evil,
        "describe flip-flop --sequences=1 --split=" + evil, "sweep run --task=flip-flop --pe=cope --set " + evil}) {
    const Finished result = tally(line);
    EXPECT_GT(result.code, 0) << line;
    EXPECT_TRUE(is_safe(result.err + result.out)) << line << "\n" << result.err;
    EXPECT_TRUE(holds(result.err, "na\\x1b[31mme\\n")) << line << "\n" << result.err;
  }
  write_file(folder_ / "config.json", R"({"task": {"name": "flip-flop"}, "pe": "cope", "mo\u001b[2Jdel": {}})");
  refused("train run --config config.json", "unknown key 'mo\\x1b[2Jdel'");
}

TEST_F(PrintedNames, OfRunsAndOutputs) {
  const std::string run = "r\x1b[31mun";
  for (const std::string& line :
       {loud(tiny(run, "none")), "eval " + run, "resume " + run, "report " + run + " --out " + run + ".svg",
        "convert " + run + " " + run + ".safetensors", "inspect " + run + " --out " + run + ".safetensors",
        "describe flip-flop --sequences=2 --out " + run + ".npy", "describe " + run + ".safetensors"}) {
    const Finished result = tally(line);
    EXPECT_EQ(result.code, 0) << line << "\n" << result.err;
    EXPECT_TRUE(is_safe(result.out + result.err)) << line << "\n" << result.out << result.err;
  }
}

}  // namespace tally::testing::usage_test
