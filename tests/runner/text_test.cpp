// Language models from the command line: prepared texts, a run that is killed and resumed, longer contexts, generation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/safetensors.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/page_data.hpp"
#include "tests/runner/program.hpp"
#include "tests/runner/run_files.hpp"
#include "tests/runner/text_runs.hpp"

namespace tally::testing {
namespace text_test {

TEST_F(TextRuns, AreTheSameForAnyThreadsAndAfterAKill) {
  ASSERT_EQ(run_tally(training("whole", {"--threads=1"}), folder_).code, 0);
  std::vector<std::string> words = training("killed", {"--threads=2"});
  words.insert(words.begin(), TALLY_RUNNER);
  const pid_t process = start_program(words, folder_, "killed");
  EXPECT_TRUE(comes_true([&] { return names_of_checkpoints(folder_ / "killed").size() >= 2; }));
  send_signal(process, SIGKILL);
  finish_program(process, folder_, "killed");
  const Finished resumed = run_tally({"resume", folder_ / "killed", "--threads=2", "--quiet"}, folder_);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_run(folder_ / "killed", folder_ / "whole");
  // The model's record names the tokenizer by its checksum instead of listing three hundred symbols.
  EXPECT_TRUE(holds(
      run_tally({"describe", folder_ / formatted("whole/checkpoints/{}", names_of_checkpoints(folder_ / "whole")[0])},
                folder_)
          .out,
      "300 tokens, "));
}

TEST_F(TextRuns, SplitsWithoutATextAreTold) {
  const Finished made = run_tally(
      {"prepare", folder_ / "few", folder_ / "texts", "--vocabulary=300", "--validation-part=0", "--test-part=0.1"},
      folder_);
  ASSERT_EQ(made.code, 0) << made.out;
  EXPECT_TRUE(holds(made.out, "no text is in the split 'validation': nothing is evaluated there")) << made.out;
  EXPECT_FALSE(holds(made.out, "the split 'test'")) << made.out;
}

TEST_F(TextRuns, AreEvaluatedWithWhatAPerplexityNeeds) {
  ASSERT_EQ(run_tally(training("run"), folder_).code, 0);
  const JsonValue json = json_of({"eval", folder_ / "run", "--split=validation", "--lengths=8,16,32"}, folder_);
  const JsonValue::Array& evaluations = json.elements("evaluations");
  ASSERT_EQ(evaluations.size(), 3u);
  for (std::size_t n = 0; n < 3; ++n) {
    const JsonValue& text = evaluations[n].at("text");
    EXPECT_EQ(text.integer("context"), std::int64_t{8} << n);
    EXPECT_EQ(text.integer("stride"), 4);
    for (const char* name : {"tokens", "bytes", "words"}) {
      EXPECT_EQ(text.integer(name), evaluations[0].at("text").integer(name)) << "the same targets";
    }
    EXPECT_GT(text.integer("bytes"), text.integer("tokens"));
    EXPECT_NEAR(text.real("perplexity"), std::exp(evaluations[n].real("loss")), 1e-9);
  }
  const Finished told = run_tally({"eval", folder_ / "run", "--split=test", "--stride=4"}, folder_);
  EXPECT_TRUE(holds(told.out, "bits per byte of ")) << told.out << told.err;
  EXPECT_TRUE(holds(told.out, "context 16, stride 4")) << told.out;
  const std::string report = run_tally({"report", folder_ / "run"}, folder_).out;
  for (const char* column : {"loss +-", "bits per byte", "word perplexity", "documents", "tokenizer"}) {
    EXPECT_TRUE(holds(report, formatted("| {}", column))) << column;
  }
  EXPECT_FALSE(holds(report, "wrong tokens")) << report;

  // A token file has no tokenizer: its ids are interpreted with the run's.
  const auto test_json = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"eval", folder_ / "run", "--split=test"};
    words.insert(words.end(), more.begin(), more.end());
    return write_json(json_of(words, folder_).at("evaluations"));
  };
  EXPECT_EQ(test_json({"--data", folder_ / "data/test.bin"}), test_json({}));

  ASSERT_EQ(prepare("other", {"--vocabulary=257"}).code, 0);
  const Finished other = run_tally({"eval", folder_ / "run", "--data", folder_ / "other"}, folder_);
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(holds(other.err, "and the model was trained on 300 tokens of the tokenizer with the checksum "))
      << other.err;
}

TEST_F(TextRuns, GoOnFromAPromptAndFromNone) {
  ASSERT_EQ(run_tally(training("run"), folder_).code, 0);
  const std::vector<std::string> words{"generate", folder_ / "run", "--count=10", "--seed=3"};
  std::vector<std::string> from_func = words;
  from_func.insert(from_func.end(), {"--prompt", "func f1(x"});
  const JsonValue first = json_of(from_func, folder_), none = json_of(words, folder_);
  EXPECT_EQ(first.elements("samples").at(0).elements("ids").size(), 10u);
  EXPECT_EQ(none.integer("prompt_tokens"), 1) << "the end of the text before";
  // The name of a special token is text unless it is allowed.
  std::vector<std::string> named = words;
  named.insert(named.end(), {"--prompt=<|endoftext|>"});
  EXPECT_GT(json_of(named, folder_).integer("prompt_tokens"), 1);
  named.emplace_back("--specials=<|endoftext|>");
  EXPECT_EQ(json_of(named, folder_).at("samples"), none.at("samples"));
  EXPECT_EQ(json_of(named, folder_).integer("prompt_tokens"), 1);
  named.back() = "--specials=<|none|>";
  const Finished unknown = run_tally(named, folder_);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(holds(unknown.err, "'<|none|>' is no special token")) << unknown.err;
  const Finished piped = run_tally({"generate", folder_ / "run", "--prompt-file", folder_ / "nothing"}, folder_);
  EXPECT_EQ(piped.code, 2);
  EXPECT_TRUE(holds(piped.err, folder_ / "nothing")) << piped.err;
}

TEST_F(TextRuns, AreComparedOnTheSameTokens) {
  ASSERT_EQ(run_tally(training("a"), folder_).code, 0);
  ASSERT_EQ(run_tally(training("b", {"--seed=2"}), folder_).code, 0);
  const auto evaluation = [&](const std::string& run) {
    return read_json(folder_ / (run + "/results.json")).elements("evaluations")[0];
  };
  const JsonValue a = evaluation("a"), b = evaluation("b");
  double sum = 0;
  for (const JsonValue& nats : a.at("text").at("parts").elements("nats")) sum += nats.real();
  EXPECT_NEAR(sum, a.real("loss") * static_cast<double>(a.at("text").integer("tokens")), 1e-9);
  EXPECT_EQ(a.at("text").string("token_checksum").size(), 8u);

  const std::vector<std::string> words{"report", folder_ / "a", folder_ / "b", "--paired"};
  const Finished told = run_tally(words, folder_);
  ASSERT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(holds(told.out, "| validation |")) << told.out;
  const JsonValue first = json_of(words, folder_).elements("paired")[0];
  EXPECT_NEAR(first.real("difference"), a.real("loss") - b.real("loss"), 1e-12);
  EXPECT_EQ(run_tally({"report", folder_ / "a", "--paired"}, folder_).code, 2);
  ASSERT_EQ(run_tally(training("c", {"--task.stride=4"}), folder_).code, 0);
  const Finished other = run_tally({"report", folder_ / "a", folder_ / "c", "--paired"}, folder_);
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(holds(other.err, "the stride is 16 in '")) << other.err;
}

// Figure 3: contexts on the same targets, including longer ones than trained, with options that may change after
// training.
TEST_F(TextRuns, VaryTheirContextOnTheSameTargets) {
  std::vector<std::string> relative = training("runs/relative");
  *std::ranges::find(relative, "--pe=cope") = "--pe=relative";
  ASSERT_EQ(run_tally(relative, folder_).code, 0);
  const std::vector<std::string> words{"eval", folder_ / "runs", "--over", "length=8,16,32", "--split=test"};
  std::vector<std::string> refused = words;
  const Finished told = run_tally(refused, folder_);
  EXPECT_EQ(told.code, 1);
  EXPECT_TRUE(holds(told.out, "perplexity against task.length with task.after=32 task.stride=4")) << told.out;
  EXPECT_TRUE(holds(told.out, "far = cap or none goes on beyond the table")) << told.out;
  EXPECT_TRUE(holds(told.out, "- at 16: context 16, stride 4, ")) << told.out;
  std::vector<std::string> capped = words;
  capped.insert(capped.end(), {"--set", "pe.relative.far=cap"});
  const JsonValue values = json_of(capped, folder_).elements("tables")[0].elements("rows")[0];
  const std::vector<std::string> eval{"eval", folder_ / "runs/relative", "--split=test", "--lengths=8,16,32",
                                      "--set=pe.relative.far=cap"};
  const JsonValue::Array evaluations = json_of(eval, folder_).elements("evaluations");
  for (std::size_t n = 0; n < 3; ++n) {
    const JsonValue &cell = values.members()[n + 1].value, &text = evaluations[n].at("text");
    EXPECT_EQ(cell.real("mean"), text.real("perplexity"));
    EXPECT_EQ(cell.real("bits_per_byte"), text.real("bits_per_byte"));
    EXPECT_EQ(cell.at("text").string("split"), "test");
    for (const char* name : {"context", "stride", "tokens", "bytes", "words", "documents"}) {
      EXPECT_EQ(cell.at("text").integer(name), text.integer(name)) << name;
    }
    for (const char* name : {"token_checksum", "tokenizer_checksum"}) {
      EXPECT_EQ(cell.at("text").string(name), text.string(name)) << name;
    }
  }
  const Finished trained = run_tally({"eval", folder_ / "runs/relative", "--set=pe.relative.share=model"}, folder_);
  EXPECT_EQ(trained.code, 2);
  EXPECT_TRUE(
      holds(trained.err, "relative was trained with share = layer, which cannot be changed any more; what can is far"))
      << trained.err;
}

// The means over marked tokens are recomputed here from the dump of the same window.
TEST_F(TextRuns, AreLookedIntoByLines) {
  ASSERT_EQ(run_tally(training("run"), folder_).code, 0);
  const auto inspect = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"inspect", folder_ / "run", "--out", folder_ / "page.html", "--count=1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tally(words, folder_);
  };
  ASSERT_EQ(inspect({"--split=test"}).code, 0);
  const JsonValue page = page_data(read_file(folder_ / "page.html"));
  ASSERT_EQ(page.elements("marks").size(), 3u);
  EXPECT_EQ(page.elements("marks")[1].string(), "function");
  const JsonValue& sequence = page.elements("sequences")[0];
  const std::vector<std::int64_t> marked = sequence.at("marked").integers();
  EXPECT_EQ(page.at("symbols").string(std::to_string(sequence.at("tokens").integers()[0])), "<|endoftext|>");
  EXPECT_EQ(marked[1], 1) << "a file begins with a function";
  ASSERT_EQ(
      run_tally({"inspect", folder_ / "run", "--split=test", "--count=1", "--out", folder_ / "d.safetensors"}, folder_)
          .code,
      0);
  const Tensor gates = SafetensorsFile::open(folder_ / "d.safetensors").read("blocks.0.gates");
  const std::vector<float> values = gates.to_vector<float>();
  for (const int kind : {-1, 1}) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        if (marked[j] == kind) sum += static_cast<double>(values[i * 16 + j]), count += 1;
      }
    }
    const JsonValue& rows = page.elements("runs")[0].elements("marked_means")[0].elements("gates")[0];
    EXPECT_NEAR(rows.elements().back().elements()[static_cast<std::size_t>(kind + 1)].real(), sum / count, 1e-4);
  }

  // A stretch of the text, another length, custom marks.
  ASSERT_EQ(inspect({"--split=test", "--at=2", "--length=24", "--mark=return"}).code, 0);
  const JsonValue other = page_data(read_file(folder_ / "page.html"));
  EXPECT_EQ(other.elements("marks").size(), 1u);
  EXPECT_EQ(other.elements("sequences")[0].string("name"), "test 0, from token 2");
  const std::vector<std::int64_t> tokens = other.elements("sequences")[0].at("tokens").integers();
  EXPECT_EQ(tokens.size(), 24u);
  const std::vector<std::int64_t> first = sequence.at("tokens").integers();
  EXPECT_TRUE(std::equal(first.begin() + 2, first.end(), tokens.begin()));
  EXPECT_EQ(inspect({"--split=train", "--at=2"}).code, 2);
  EXPECT_EQ(inspect({"--mark=("}).code, 1);
}

TEST_F(TextRuns, WhatIsNotThereIsNamed) {
  EXPECT_TRUE(holds(run_tally({"train", folder_ / "none", "--task=text", "--pe=none"}, folder_).err,
                    "say which text: --data FOLDER"));
  std::vector<std::string> words = training("short");
  std::ranges::replace(words, "--length=16", "--length=100000");
  const Finished finished = run_tally(words, folder_);
  EXPECT_TRUE(holds(finished.err, "train.bin has ")) << finished.err;
  EXPECT_FALSE(fs::exists(folder_ / "short"));
}

TEST_F(TextRuns, DamagedDataIsNoWrongUsage) {
  ASSERT_EQ(run_tally(training("trained"), folder_).code, 0);
  const auto change = [&](const std::string& file) {
    std::string bytes = read_file(folder_ / file);
    bytes[bytes.size() / 2] ^= 1;
    write_file(folder_ / file, bytes);
  };
  change("data/test.bin");
  const Finished changed = run_tally({"eval", folder_ / "trained", "--split=test", "--count=1"}, folder_);
  EXPECT_EQ(changed.code, 1);
  EXPECT_TRUE(holds(changed.err, "test.bin: its checksum is ")) << changed.err;
  change("data/train.bin");
  const Finished refused = run_tally(training("run"), folder_);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "train.bin: its checksum is ")) << refused.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  fs::resize_file(folder_ / "data/train.bin", fs::file_size(folder_ / "data/train.bin") - 2);
  const Finished cut = run_tally(training("run"), folder_);
  EXPECT_EQ(cut.code, 1);
  EXPECT_TRUE(holds(cut.err, "train.bin: holds ")) << cut.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  fs::remove(folder_ / "data/manifest.json");
  const Finished none = run_tally(training("run"), folder_);
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(holds(none.err, "manifest.json is not there; 'tally prepare' makes such a folder")) << none.err;
}

// Reproduces a figure of the paper with one command: trains, evaluates each model at the contexts on the same targets,
// stores the evaluations, and prints the same results as eval.
TEST_F(TextRuns, AreReproducedAtTheContextsOfFigure3) {
  std::vector<std::string> words{"reproduce", "figure3",     "--dir",   folder_ / "runs",
                                 "--seeds=1", "--threads=1", "--jobs=1"};
  std::vector<std::string> nowhere = words;
  nowhere.insert(nowhere.end(), {"--set", "task.data=" + (folder_ / "nowhere")});
  const Finished without = run_tally(nowhere, folder_);
  EXPECT_EQ(without.code, 2);
  EXPECT_TRUE(
      holds(without.err, folder_ / "nowhere, which figure3 trains on; it is made by: tasks/text/fetch.sh prose"))
      << without.err;
  for (const std::string& change :
       {"task.data=" + (folder_ / "data"), std::string("task.length=16"), std::string("model.layers=1"),
        std::string("model.width=8"), std::string("model.heads=2"), std::string("batch=4"), std::string("steps=3"),
        std::string("eval-every=0"), std::string("save-every=3"), std::string("optimiser.warmup=0")}) {
    words.insert(words.end(), {"--set", change});
  }
  std::vector<std::string> plan = words;
  plan.emplace_back("--dry-run");
  EXPECT_TRUE(holds(run_tally(plan, folder_).out, "; then 27 evaluations at other contexts\n"));
  words.insert(words.end(), {"--out", folder_ / "figure3.md"});
  const JsonValue json = json_of(words, folder_);
  ASSERT_EQ(json.elements("rows").size(), 9u);
  EXPECT_TRUE(holds(read_file(folder_ / "figure3.md"), "Perplexity of a token: mean over 1 seed"));
  EXPECT_TRUE(holds(read_file(folder_ / "figure3.md"), ", split validation: context 256, stride 128, "));

  std::string run;
  for (const auto& entry : fs::directory_iterator(folder_ / "runs/text-prose-quick")) {
    if (entry.is_directory() && entry.path().filename().string().starts_with("relative-")) run = entry.path();
  }
  const std::vector<std::string> contexts{"--lengths=256,512,1024", "--split=validation"};
  for (const auto& [row, far] : {std::pair{2, "none"}, std::pair{3, "cap"}}) {
    std::vector<std::string> eval{"eval", run, formatted("--set=pe.relative.far={}", far)};
    eval.insert(eval.end(), contexts.begin(), contexts.end());
    const JsonValue evaluated = json_of(eval, folder_);
    const JsonValue line = json.elements("rows")[static_cast<std::size_t>(row)];
    for (std::size_t n = 0; n < 3; ++n) {
      const JsonValue &cell = line.members()[n + 1].value, &text = evaluated.elements("evaluations")[n].at("text");
      EXPECT_EQ(cell.real("mean"), text.real("perplexity")) << far << " " << n;
      EXPECT_EQ(cell.at("text").integer("tokens"), text.integer("tokens"));
      EXPECT_EQ(cell.real("bits_per_byte"), text.real("bits_per_byte"));
    }
  }
  // Stored evaluations are not counted as remaining. relative has two rows.
  EXPECT_TRUE(holds(run_tally(plan, folder_).out, "runs are finished; nothing is left\n"));
  fs::rename(run + "/varied.json", folder_ / "varied.json");
  EXPECT_TRUE(holds(run_tally(plan, folder_).out, "; what is left is 6 evaluations at other contexts\n"));
  EXPECT_EQ(json_of(plan, folder_).integer("contexts_left"), 6);
  fs::rename(folder_ / "varied.json", run + "/varied.json");
  fs::rename(folder_ / "data", folder_ / "gone");  // stored evaluations remain available without the text
  EXPECT_EQ(write_json(json_of(words, folder_).at("rows")), write_json(json.at("rows")));
  // A damaged file is reported, and only its own row is missing.
  write_file(run + "/varied.json", "{");
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  const Finished shown = run_tally(as_json, folder_);
  EXPECT_EQ(shown.code, 1);
  const JsonValue damaged = parse_json(shown.out, JsonLimits{}, "reproduce");
  EXPECT_EQ(damaged.elements("problems").size(), 1u);
  EXPECT_TRUE(damaged.elements("rows")[2].members()[1].value.is_null());
  EXPECT_TRUE(damaged.elements("rows")[0].members()[1].value.contains("log_mean"));
}

}  // namespace text_test
}  // namespace tally::testing
