// Wrong command lines and configurations: exit code, message, and that nothing is written.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/cpu/parallel.hpp"
#include "core/io/atomic_file.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/runs/preset.hpp"
#include "tests/devices.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace usage_test {

struct WrongUsage {
  std::vector<std::string> words;
  std::string message;  // part of it
  int code = 2;
};

void expect_refused(const std::vector<WrongUsage>& cases, const TemporaryFolder& folder) {
  for (const WrongUsage& one : cases) {
    const Finished result = run_tally(one.words, folder);
    std::string line;
    for (const std::string& word : one.words) line += " " + word;
    EXPECT_EQ(result.code, one.code) << line;
    EXPECT_TRUE(holds(result.err, one.message)) << line << "\n" << result.err;
    EXPECT_TRUE(result.err.starts_with("tally: ")) << result.err;
  }
}

// tally train RUN with a flip-flop and cope, then the words.
std::vector<std::string> train_with(const TemporaryFolder& folder, std::vector<std::string> words) {
  std::vector<std::string> all{"train", folder / "run", "--task=flip-flop", "--pe=cope"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// tally sweep DIR with --set.
std::vector<std::string> sweep_with(const TemporaryFolder& folder, const std::string& set) {
  return {"sweep", folder / "run", "--task=flip-flop", "--pe=cope", "--set", set};
}

TEST(Usage, HelpAndVersion) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_tally({}, folder).code, 2);
  for (const char* word : {"--help", "-h", "help"}) {
    const Finished result = run_tally({word}, folder);
    EXPECT_EQ(result.code, 0);
    for (const char* command : {"train", "resume", "eval", "describe", "check"})
      EXPECT_TRUE(holds(result.out, command));
  }
  EXPECT_EQ(run_tally({"--version"}, folder).out, "tally " TALLY_VERSION "\n");
  const Finished train = run_tally({"train", "--help"}, folder);
  EXPECT_EQ(train.code, 0);
  for (const char* part : {"Run:", "Task flip-flop:", "Model:", "Optimiser:", "--optimiser.lr,--lr=0.001",
                           "--model.width,--width=256", "--device=cpu"}) {
    EXPECT_TRUE(holds(train.out, part)) << part << "\n" << train.out;
  }
  const Finished cope = run_tally({"train", "--help", "--pe", "cope", "--task", "counting"}, folder);
  EXPECT_TRUE(holds(cope.out, "--pe.cope.p-max,--pe.p-max=64") && holds(cope.out, "--task.vars=1")) << cope.out;
}

TEST(Usage, EveryHelpBeginsWithThreeExamples) {
  const TemporaryFolder folder;
  for (const Command& command : commands()) {
    const std::string help = run_tally({command.name, "--help"}, folder).out;
    const std::string begin = formatted("{}\n\nExamples:\n", command.summary);
    EXPECT_TRUE(help.starts_with(begin)) << help;
    const std::string example = formatted("  tally {}", command.name);
    std::size_t count = 0;
    for (std::size_t at = help.find(example, begin.size() - 1); at != std::string::npos;
         at = help.find(example, at + 1)) {
      ++count;
    }
    EXPECT_EQ(count, 3U) << help;
  }
}

TEST(Usage, HelpKnowsPresetsAndEncodings) {
  const TemporaryFolder folder;
  // The help wraps long lines.
  const auto help = [&](const std::vector<std::string>& words) {
    std::istringstream text(run_tally(words, folder).out);
    std::string flat;
    for (std::string word; text >> word;) flat += word + " ";
    return flat;
  };
  EXPECT_TRUE(holds(help({"train", "--help", "--task=flip-flop"}), "settings: demo, paper, quick (")) << "flip-flop";
  EXPECT_TRUE(holds(help({"train", "--help", "--task=counting"}), "settings: brief, paper, quick (")) << "counting";
  EXPECT_TRUE(holds(help({"train", "--help"}), "settings: " + preset_names() + " (")) << "all tasks together";
  EXPECT_TRUE(holds(help({"describe", "--help", "counting"}), "settings of the task: brief, paper, quick"))
      << "describe";
  for (const char* command : {"train", "sweep"}) {
    EXPECT_TRUE(holds(help({command, "--help"}), "--help --pe cope")) << command;
    EXPECT_FALSE(holds(help({command, "--help", "--pe", "rope"}), "--help --pe cope")) << command;
  }
  EXPECT_TRUE(holds(help({"train", "--help"}), "mean of gradients (in [0, 1))")) << "an open end";
  EXPECT_TRUE(holds(help({"generate", "--help"}), "reaches p (in (0, 1])")) << "an open end";
  EXPECT_TRUE(holds(help({"describe", "--help"}), "with --sequences one a line")) << "describe";
  EXPECT_TRUE(holds(help({"eval", "--help"}), "print one JSON object at the end")) << "eval";
}

TEST(Usage, ShortNamesOfOptions) {
  const TemporaryFolder folder;
  const Finished result = run_tally(
      train_with(folder, {"--length=32", "--lr=0.5", "--width=16", "--layers=1", "--heads=2", "--dry-run", "--json"}),
      folder);
  ASSERT_EQ(result.code, 0) << result.err;
  const JsonValue json = parse_json(result.out, {.max_depth = 16, .max_values = 1000}, "");
  const JsonValue& config = json.at("config");
  EXPECT_EQ(config.at("task").integer("length"), 32);
  EXPECT_EQ(config.at("optimiser").real("lr"), 0.5);
  EXPECT_EQ(config.at("model").integer("width"), 16);
  EXPECT_EQ(config.at("model").integer("layers"), 1);
  EXPECT_EQ(config.at("model").integer("heads"), 2);
  EXPECT_EQ(run_tally(train_with(folder, {"--lr=0.5", "--optimiser.lr=0.4"}), folder).code, 2) << "one option, twice";
}

TEST(Usage, WrongCommandsAndOptionsNameTheNearest) {
  const TemporaryFolder folder;
  expect_refused({{{"trian"}, "did you mean 'train'?"},
                  {{"list", "tasks"}, "unknown command 'list'"},
                  {{"train"}, "RUN is required"},
                  {{"reproduce"}, "NAME is required: table or figure: "},
                  {{"resume"}, "RUN is required"},
                  {{"train", "", "--task=flip-flop", "--pe=cope"}, "the name of the run folder is empty"},
                  {{"sweep", "", "--task=flip-flop", "--pe=cope"}, "the name of the folder for the runs is empty"},
                  {{"train", folder / "run", "--task=flipflop", "--pe=cope"}, "did you mean 'flip-flop'?"},
                  {{"train", folder / "run", "--task=flip-flop", "--pe=cop"}, "did you mean 'cope'?"},
                  {{"train", folder / "run", "--pe=cope"}, "--task is missing"},
                  {{"train", folder / "run", "--task=flip-flop"}, "--pe is missing"},
                  {train_with(folder, {"--preset=papre"}), "it has demo, paper, quick; did you mean 'paper'?"},
                  {train_with(folder, {"--optimiser.name=adm"}), "did you mean 'adam'?"},
                  {{"bench", "stp"}, "stp not in {step,attention}"},
                  {sweep_with(folder, "foo=1"), "unknown option 'foo'; 'tally train --help'"},
                  {sweep_with(folder, "widht=8"), "unknown option 'widht'; did you mean 'model.width'?"},
                  {sweep_with(folder, "modle.width=8"), "did you mean 'model.width'?"},
                  {sweep_with(folder, "pe.pmax=8"), "did you mean 'pe.cope.p-max'?"},
                  {train_with(folder, {"--model.widht=8"}), "did you mean '--model.width'?"},
                  {train_with(folder, {"--pe.pmax=8"}), "did you mean '--pe.p-max'?"},
                  {train_with(folder, {"--steps"}), "--steps needs a value"},
                  {train_with(folder, {"--steps=1", "--steps=2"}), "--steps"},
                  {train_with(folder, {"--threads=many"}), "--threads"},
                  {train_with(folder, {"--device=gpu"}), "'gpu' is not a device"},
                  {{"describe", "ropes"}, "did you mean 'rope'?"},
                  {{"check", "--pe=alibis"}, "did you mean 'alibi'?"}},
                 folder);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Usage, NamesOfOtherProgramsLeadToTheOption) {
  const TemporaryFolder folder;
  std::vector<WrongUsage> cases;
  for (const auto& [name, meant] :
       std::vector<std::pair<std::string, std::string>>{{"--seq-len", "length"},
                                                        {"--epochs", "steps"},
                                                        {"--gpu", "device"},
                                                        {"--weight-decay", "optimiser.weight-decay"},
                                                        {"--learning-rate", "lr"},
                                                        {"--batch-size", "batch"},
                                                        {"--batch_size", "batch"},
                                                        {"--d_model", "width"},
                                                        {"--dropout", "model.dropout"},
                                                        {"--encoding", "pe"},
                                                        {"--eval-interval", "eval-every"},
                                                        {"--model.n_embd", "width"}}) {
    cases.push_back({train_with(folder, {name, "1"}), formatted("did you mean '--{}'?", meant)});
  }
  cases.push_back({train_with(folder, {"--compile"}), "unknown option '--compile'; 'tally train --help' lists all"});
  cases.push_back({sweep_with(folder, "n_layer=1,2"), "did you mean 'model.layers'?"});
  expect_refused(cases, folder);
}

TEST(Usage, BothSpellingsOfTheOptimiserAreUnderstood) {
  const TemporaryFolder folder;
  const Finished train = run_tally(train_with(folder, {"--optimizer.lr=0.5", "--dry-run", "--json"}), folder);
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(parse_json(train.out, {}, "").at("config").at("optimiser").real("lr"), 0.5);
  std::vector<std::string> words = sweep_with(folder, "optimizer.lr=0.5,0.1");
  words.insert(words.end(), {"--dry-run", "--seeds=1"});
  const Finished sweep = run_tally(words, folder);
  EXPECT_TRUE(holds(sweep.out, "cope-optimiser.lr=0.5-seed1")) << sweep.out << sweep.err;
}

TEST(Usage, AWarmUpOfAPresetIsShortenedForAShortRun) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{"--preset=quick", "--steps=5", "--dry-run"};
  const Finished shorter = run_tally(train_with(folder, words), folder);
  EXPECT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_TRUE(holds(shorter.out, "note: the warm-up of preset quick, 50 steps, is shortened to 1 for a run of 5"))
      << shorter.out;
  std::vector<std::string> longer = words;
  longer.emplace_back("--optimiser.warmup=6");
  expect_refused({{train_with(folder, longer), "warmup 6 is longer than the run of 5 steps"}}, folder);
}

TEST(Usage, PrepareWithItsFoldersSwappedNamesTheRightForm) {
  const TemporaryFolder folder;
  const std::string texts = folder / "texts", target = folder / "target";
  std::filesystem::create_directory(texts);
  write_file_atomically(texts + "/a.txt", "a text");
  const std::string right = formatted("the output comes first: tally prepare {} {}", target, texts);
  expect_refused({{{"prepare", texts, target}, right}, {{"prepare", texts, target, "--force"}, right}}, folder);
  EXPECT_TRUE(std::filesystem::exists(texts + "/a.txt"));
}

// The word after an empty value is not used as the value.
TEST(Usage, AnEmptyValueIsRefusedByName) {
  const TemporaryFolder folder;
  const auto refused = [](const std::string& name) { return formatted("{} has no value behind '='", name); };
  expect_refused({{{"train", folder / "run", "--task=flip-flop", "--pe=rope", "--pe.rope.short-factors=", "--steps=4"},
                   refused("--pe.rope.short-factors")},
                  {{"train", folder / "run", "--task=flip-flop", "--pe=alibi", "--pe.learned=", "--steps=4"},
                   refused("--pe.learned")},
                  {{"check", "--pe=cope", "--against=", "none"}, refused("--against")},
                  {{"describe", "--device=", "encodings"}, refused("--device")},
                  {{"bench", "step", "--steps=", "3"}, refused("--steps")}},
                 folder);
  const Finished empty = run_tally({"train", folder / "run", "--task=flip-flop", "--pe=rope", "--pe.rope.short-factors",
                                    "", "--model.width=32", "--dry-run", "--quiet"},
                                   folder);
  EXPECT_EQ(empty.code, 0) << empty.err;
}

TEST(Usage, OptionsOfAnotherUseOfTheTokenizerAreRefused) {
  const TemporaryFolder folder;
  const std::string out = folder / "out", made = folder / "made.json";
  write_file_atomically(folder / "text", "a text");
  const std::string why = " has no effect with WHAT ";
  expect_refused(
      {{{"tokenizer", "show", "bytes", "--text=abc", "--out", out}, "--out" + why + "show; it is for encode or decode"},
       {{"tokenizer", "train", made, folder / "text", "--out", out}, "--out" + why + "train"},
       {{"tokenizer", "encode", "bytes", "--text=abc", "--vocabulary=300"}, "--vocabulary" + why + "encode"},
       {{"tokenizer", "show", "bytes", "--min-count=3"}, "--min-count" + why + "show; it is for train"},
       {{"tokenizer", "decode", "bytes", "--text=97", "--specials=<s>"}, "--specials" + why + "decode"}},
      folder);
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(made));
  EXPECT_EQ(run_tally({"tokenizer", "show", "bytes", "--text=abc"}, folder).code, 0);
}

// A folder with tokenizer.json is one that other libraries load; an existing configuration stays.
TEST(Usage, ATokenizerHasItsConfigurationBesideIt) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "text", "low lower lowest low lower");
  const std::vector<std::string> words{"tokenizer", "train", folder / "tokenizer.json", folder / "text",
                                       "--vocabulary=260"};
  ASSERT_EQ(run_tally(words, folder).code, 0);
  const std::string config = folder / "tokenizer_config.json";
  EXPECT_EQ(read_json(config).string("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(read_json(config).string("eos_token"), "<|endoftext|>");
  write_file_atomically(config, "{}");
  const Finished again = run_tally(words, folder);
  EXPECT_EQ(again.code, 0);
  EXPECT_TRUE(holds(again.out, "tokenizer_config.json: stays as it is")) << again.out;
  EXPECT_EQ(read_file(config), "{}");
}

TEST(Usage, ADeviceThatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  // A number that no machine has, also if there is a GPU.
  const Finished result = run_tally(train_with(folder, {"--device=cuda:99"}), folder);
  EXPECT_EQ(result.code, 1);
  const bool told = cuda_devices().empty() ? holds(result.err, "no CUDA backend") || holds(result.err, "no CUDA device")
                                           : holds(result.err, "there is no device 99: this machine has ");
  EXPECT_TRUE(told) << result.err;
  EXPECT_TRUE(result.err.starts_with("tally: ")) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Usage, WrongValuesAreRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  expect_refused(
      {{train_with(folder, {"--model.width=8x"}), "width must be an integer, got '8x'"},
       {train_with(folder, {"--model.heads=0"}), "heads must be 1 to"},
       {train_with(folder, {"--model.heads=3"}), "width 256 is not divisible by 3 heads"},
       {train_with(folder, {"--optimiser.lr=1e999"}), "out of range"},
       {train_with(folder, {"--optimiser.lr=nan"}), "finite"},
       {train_with(folder, {"--optimiser.beta1=1"}), "beta1 must be in [0, 1), got '1'"},
       {train_with(folder, {"--optimiser.lr=1", "--optimiser.weight-decay=1"}), "their product must be below 1"},
       {train_with(folder, {"--model.norm-eps=1e-30"}), "norm-eps = 1e-30 must be 0 or at least 1e-20"},
       {train_with(folder, {"--model.width=1", "--model.heads=1"}), "norm = layer makes 0 of a width of 1"},
       {{"sweep", folder / "run", "--task=flip-flop", "--pe=cope", "--seeds=9223372036854775807"},
        "is not a seed, 0 to"},
       {train_with(folder, {"--steps=0"}), "steps must be 1 to 2147483647, got '0'"},
       {train_with(folder, {"--config=" + (folder / "config.json"), "--preset=quick"}), "exclude each other"},
       {train_with(folder, {"--optimiser.schedule=lineal"}), "constant, linear, cosine"},
       {train_with(folder, {"--batch=8", "--micro-batch=9"}), "micro-batch 9 is more than the batch of 8"},
       {train_with(folder, {"--batch=8", "--micro-batch=2", "--micro-batches=4"}),
        "micro-batch 2 and micro-batches 4 say the same of a batch; give one of them"},
       {train_with(folder, {"--batch=9", "--micro-batches=4"}),
        "a batch of 9 has no 4 micro-batches of one size; with 3 sequences each there are 3"},
       {train_with(folder, {"--optimiser.warmup=2000"}),
        "warmup 2000 is longer than the run of 1000 steps; a shorter one is set with --optimiser.warmup"}},
      folder);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Usage, ProductsOfTf32AreForCudaDevices) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{"bench", "step",          "--length", "4",           "--batch",
                                       "1",     "--model.width", "8",        "--precision", "tf32"};
  const Finished refused = run_tally(words, folder);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(holds(refused.err, "--precision tf32 is for --device cuda and cuda-host")) << refused.err;
  std::vector<std::string> on_host = words;
  on_host.insert(on_host.end(), {"--device", "cuda-host"});
  EXPECT_EQ(run_tally(on_host, folder).code, 0);
  std::vector<std::string> bf16 = words;
  bf16.back() = "bf16";
  EXPECT_EQ(run_tally(bf16, folder).code, 0);
}

TEST(Usage, WhatDoesNotFitInMemoryIsRefusedWithTheEstimate) {
  const TemporaryFolder folder;
  expect_refused({{train_with(folder, {"--model.width=65536", "--model.layers=1000"}), "this needs about", 1},
                  {train_with(folder, {"--length=1048576"}), "this needs about", 1},
                  {train_with(folder, {"--batch=1048576", "--dry-run"}), "activations", 1}},
                 folder);
#ifndef TALLY_SANITIZED  // sanitizers reserve more than that
  // With an address space of 1 GiB, a model of 1.1 GiB does not fit on any machine.
  const std::string limited = "ulimit -v 1048576; exec '" TALLY_RUNNER "' train '" + (folder / "run") +
                              "' --task flip-flop --pe none --model.width 2048 --model.layers 2";
  const Finished result = run_program({"/bin/sh", "-c", limited}, folder);
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(holds(result.err, "but there are 1 GiB")) << result.err;
#endif
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Usage, WrongConfigurationFiles) {
  const TemporaryFolder folder;
  const std::string run = R"("task": {"name": "flip-flop"}, "pe": "cope")";
  const std::vector<std::pair<std::string, std::string>> files{
      {"", "end"},
      {"[]", "must hold an object"},
      {"{" + run + "} x", "byte"},
      {"{" + run + R"(, "modle": {}})", "did you mean 'model'?"},
      {"{" + run + R"(, "model": {"widht": 8}})", "did you mean 'model.width'?"},
      {"{" + run + R"(, "model": 5})", "'model' must be an object"},
      {"{" + run + R"(, "model": {"width": "8"}})", "'model.width' must be an integer, not a string"},
      {"{" + run + R"(, "model": {"heads": 7}})", "not divisible by 7 heads"},
      {"{" + run + R"(, "run": {"length": 64}})", "unknown key 'run.length'"},
      {"{" + run + R"(, "format": 2})", "format 2"},
      {R"({"task": {"name": "flip-flop"}})", "pe"},
      {R"({"task": {"name": "flipflop"}, "pe": "cope"})", "did you mean 'flip-flop'?"},
      {"{" + run + ", \"preset\": \"\xff\"}", "UTF-8"},
      {std::string(100'000, '['), "nested deeper"}};
  for (const auto& [content, message] : files) {
    write_file(folder / "config.json", content);
    const Finished result = run_tally({"train", folder / "run", "--config", folder / "config.json"}, folder);
    EXPECT_EQ(result.code, 2) << content.substr(0, 200);
    EXPECT_TRUE(holds(result.err, message)) << content.substr(0, 200) << "\n" << result.err;
    EXPECT_TRUE(holds(result.err, folder / "config.json")) << result.err;
  }
  EXPECT_EQ(run_tally({"train", folder / "run", "--config", folder / "missing.json"}, folder).code, 2);
  EXPECT_EQ(run_tally({"train", folder / "run", "--config", folder.path().string()}, folder).code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

// Errors in a run's own config.json.
TEST(Usage, WrongConfigurationsOfRunsAreNamed) {
  const TemporaryFolder folder;
  const std::string run = folder / "run", path = run + "/config.json";
  ASSERT_EQ(run_tally(tiny_training(run, "cope"), folder).code, 0);
  const std::string good = read_file(path);
  for (const auto& [from, to] : {std::pair{"\"heads\": 2", "\"haeds\": 2"},
                                 {"\"heads\": 2", "\"heads\": 0"},
                                 {"\"heads\": 2", "\"heads\": 3"},
                                 {"\"length\": 16", "\"length\": 15"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos);
    write_file(path, bad.replace(bad.find(from), std::string_view(from).size(), to));
    expect_refused({{{"eval", run}, path, 1},
                    {{"resume", run}, path, 1},
                    {{"inspect", run}, path, 1},
                    {{"convert", run, folder / "out"}, path, 1}},
                   folder);
  }
}

TEST(Usage, FoldersThatHoldSomethingAreRefused) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  std::filesystem::create_directory(run);  // an empty folder is fine
  ASSERT_EQ(run_tally(tiny_training(run, "none"), folder).code, 0);
  const auto before = checkpoints_of(run);
  const Finished refused = run_tally(tiny_training(run, "rope"), folder);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "holds a run already") && holds(refused.err, "--force")) << refused.err;
  EXPECT_TRUE(checkpoints_of(run) == before);

  for (const char* aside : {"run.old", "run.old-2"}) {
    EXPECT_EQ(run_tally(tiny_training(run, "rope", {"--force"}), folder).code, 0);
    EXPECT_TRUE(std::filesystem::exists(folder / aside));
  }
  EXPECT_TRUE(checkpoints_of(folder / "run.old") == before);

  std::filesystem::create_directory(folder / "other");
  write_file(folder / "other/thesis.txt", "mine");
  EXPECT_EQ(run_tally(tiny_training(folder / "other", "none"), folder).code, 1);
  EXPECT_EQ(run_tally(tiny_training(folder / "other", "none", {"--force"}), folder).code, 0);
  EXPECT_EQ(read_file(folder / "other.old/thesis.txt"), "mine");

  write_file(folder / "file", "mine");
  EXPECT_EQ(run_tally(tiny_training(folder / "file", "none"), folder).code, 1);
  EXPECT_EQ(read_file(folder / "file"), "mine");
}

TEST(Usage, RunsThatAreNoneAreNamed) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "empty");
  std::filesystem::create_directory(folder / "broken");
  write_file(folder / "broken/config.json", "{\"format\": 1");
  for (const char* command : {"resume", "eval"}) {
    expect_refused({{{command, folder / "missing"}, "there is no folder", 1},
                    {{command, folder / "empty"}, "has no config.json", 1},
                    {{command, folder / "broken"}, "config.json", 1}},
                   folder);
  }
}

TEST(Usage, AnOutputThatCannotBeWrittenIsAFailure) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_program({"/bin/sh", "-c", "exec '" TALLY_RUNNER "' describe > /dev/full"}, folder).code, 1);
}

}  // namespace usage_test
}  // namespace tally::testing
