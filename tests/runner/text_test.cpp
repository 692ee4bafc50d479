// Language models from the command line: prepared texts, a run that is killed and resumed, longer contexts, generation.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runner/text_runs.hpp"

namespace tally::testing::text_test {

TEST_F(TextRuns, AreTheSameForAnyThreadsAndAfterAKill) {
  done(training("whole", "--threads=1"));
  train_and_kill("killed", "--threads=2");
  done("resume killed --threads=2 --quiet");
  expect_same_run(folder_ / "killed", folder_ / "whole");
  // The model's record names the tokenizer by its checksum instead of listing three hundred symbols.
  expect_parts(done("describe whole/checkpoints/" + names_of_checkpoints(folder_ / "whole")[0]), {"300 tokens, "});
  // The report names splits without a text.
  const std::string made = done("prepare few texts --vocabulary=300 --validation-part=0 --test-part=0.1");
  expect_parts(made, {"no text is in the split 'validation': nothing is evaluated there"});
  EXPECT_FALSE(holds(made, "the split 'test'")) << made;
}

TEST_F(TextRuns, AreEvaluatedWithWhatAPerplexityNeeds) {
  done(training("run"));
  const JsonValue::Array evaluations = json("eval run --split=validation --lengths=8,16,32").elements("evaluations");
  ASSERT_EQ(evaluations.size(), 3u);
  for (std::size_t n = 0; n < 3; ++n) {
    const JsonValue& text = evaluations[n].at("text");
    EXPECT_EQ(text.integer("context"), std::int64_t{8} << n);
    EXPECT_EQ(text.integer("stride"), 4);
    for (const char* name : {"tokens", "bytes", "words"}) {
      EXPECT_EQ(text.integer(name), evaluations[0].at("text").integer(name)) << "the same targets";
    }
    EXPECT_NEAR(text.real("perplexity"), std::exp(evaluations[n].real("loss")), 1e-9);
  }
  expect_parts(done("eval run --split=test --stride=4"), {"bits per byte of ", "context 16, stride 4"});
  const std::string report = done("report run");
  expect_parts(report, {"| loss +-", "| bits per byte", "| word perplexity", "| documents", "| tokenizer"});
  EXPECT_FALSE(holds(report, "wrong tokens")) << report;
  // A token file has no tokenizer: its ids are interpreted with the run's.
  EXPECT_EQ(write_json(json("eval run --split=test --data data/test.bin").at("evaluations")),
            write_json(json("eval run --split=test").at("evaluations")));
  done("prepare other texts --quiet --vocabulary=257");
  refused("eval run --data other", "and the model was trained on 300 tokens of the tokenizer with the checksum ");
}

TEST_F(TextRuns, GoOnFromAPromptAndFromNone) {
  done(training("run"));
  const std::string generate = "generate run --count=10 --seed=3 ", named = generate + "--prompt=<|endoftext|> ";
  EXPECT_EQ(json(generate + "--prompt 'func f1(x'").elements("samples").at(0).elements("ids").size(), 10u);
  const JsonValue none = json(generate);
  EXPECT_EQ(none.integer("prompt_tokens"), 1) << "the end of the text before";
  // The name of a special token is text unless it is allowed.
  EXPECT_GT(json(named).integer("prompt_tokens"), 1);
  EXPECT_EQ(json(named + "--specials=<|endoftext|>").at("samples"), none.at("samples"));
  refused({{named + "--specials=<|none|>", "'<|none|>' is no special token"},
           {"generate run --prompt-file nothing", "nothing"}});
}

// Figure 3: contexts on the same targets, including longer ones than trained, with options that may change after
// training.
TEST_F(TextRuns, VaryTheirContextOnTheSameTargets) {
  done(training("runs/relative", "--pe=relative"));
  const std::string vary = "eval runs --over length=8,16,32 --split=test ";
  const Finished told = tally(vary);
  EXPECT_EQ(told.code, 1);
  expect_parts(told.out, {"perplexity against task.length with task.after=32 task.stride=4",
                          "far = cap or none allows longer sequences", "- at 16: context 16, stride 4, "});
  const JsonValue values = json(vary + "--set pe.relative.far=cap").elements("tables")[0].elements("rows")[0];
  const JsonValue::Array evaluations =
      json("eval runs/relative --split=test --lengths=8,16,32 --set=pe.relative.far=cap").elements("evaluations");
  for (std::size_t n = 0; n < 3; ++n) {
    const JsonValue &cell = values.members()[n + 1].value, &text = evaluations[n].at("text");
    EXPECT_EQ(cell.real("mean"), text.real("perplexity"));
    EXPECT_EQ(cell.real("bits_per_byte"), text.real("bits_per_byte"));
    for (const char* name : {"context", "stride", "tokens", "bytes", "words", "documents"}) {
      EXPECT_EQ(cell.at("text").integer(name), text.integer(name)) << name;
    }
    for (const char* name : {"token_checksum", "tokenizer_checksum"}) {
      EXPECT_EQ(cell.at("text").string(name), text.string(name)) << name;
    }
  }
  refused("eval runs/relative --set=pe.relative.share=model",
          "relative was trained with share = layer, which cannot be changed any more; what can is far");
}

// The means over marked tokens are recomputed here from the dump of the same window.
TEST_F(TextRuns, AreLookedIntoByLines) {
  done(training("run"));
  const std::string inspect = "inspect run --count=1 --split=test ";
  done(inspect + "--out page.html");
  const JsonValue page = page_data(file("page.html"));
  ASSERT_EQ(page.elements("marks").size(), 3u);
  EXPECT_EQ(page.elements("marks")[1].string(), "function");
  const JsonValue& sequence = page.elements("sequences")[0];
  const std::vector<std::int64_t> marked = sequence.at("marked").integers();
  EXPECT_EQ(page.at("symbols").string(std::to_string(sequence.at("tokens").integers()[0])), "<|endoftext|>");
  EXPECT_EQ(marked[1], 1) << "a file begins with a function";
  done(inspect + "--out d.safetensors");
  const std::vector<float> values =
      SafetensorsFile::open(folder_ / "d.safetensors").read("blocks.0.gates").to_vector<float>();
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
  done(inspect + "--out page.html --at=2 --length=24 --mark=return");
  const JsonValue other = page_data(file("page.html"));
  EXPECT_EQ(other.elements("marks").size(), 1u);
  EXPECT_EQ(other.elements("sequences")[0].string("name"), "test 0, from token 2");
  const std::vector<std::int64_t> tokens = other.elements("sequences")[0].at("tokens").integers();
  EXPECT_EQ(tokens.size(), 24u);
  const std::vector<std::int64_t> first = sequence.at("tokens").integers();
  EXPECT_TRUE(std::equal(first.begin() + 2, first.end(), tokens.begin()));
  refused("inspect run --out page.html --split=train --at=2", "--at");
  refused("inspect run --out page.html --mark=(", "'('", 1);
}

// Reproduces a figure of the paper with one command: trains, evaluates each model at the contexts on the same targets,
// stores the evaluations, and prints the same results as eval.
TEST_F(TextRuns, AreReproducedAtTheContextsOfFigure3) {
  std::string line =
      "reproduce figure3 --rows rope,relative --rows 'relative, capped' --dir runs --seeds=1 --threads=1 --jobs=1";
  refused(line + " --set task.data=nowhere",
          "nowhere, which figure3 trains on; it is made by: tasks/text/fetch.sh prose");
  for (const char* change : {"task.data=data", "task.length=16", "model.layers=1", "model.width=8", "model.heads=2",
                             "batch=4", "steps=3", "eval-every=0", "save-every=3", "optimiser.warmup=0"}) {
    line += formatted(" --set {}", change);
  }
  line += " --out figure3.md";
  const JsonValue table = json(line);
  ASSERT_EQ(table.elements("rows").size(), 3u);
  expect_parts(file("figure3.md"),
               {"Perplexity of a token: mean over 1 seed", ", split validation: context 256, stride 128, "});

  std::string run;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "runs/text-prose-quick")) {
    if (entry.is_directory() && entry.path().filename().string().starts_with("relative-")) run = entry.path();
  }
  const JsonValue::Array capped =
      json("eval " + run + " --set=pe.relative.far=cap --lengths=256,512,1024 --split=validation")
          .elements("evaluations");
  for (std::size_t n = 0; n < 3; ++n) {
    const JsonValue &cell = table.elements("rows")[2].members()[n + 1].value, &text = capped[n].at("text");
    EXPECT_EQ(cell.real("mean"), text.real("perplexity")) << n;
    EXPECT_EQ(cell.at("text").integer("tokens"), text.integer("tokens"));
  }
}

}  // namespace tally::testing::text_test
