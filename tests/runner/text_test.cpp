// Language models from the command line: prepared texts, runs that are killed and resumed, longer contexts,
// generation; separate documents; texts that were moved or damaged; token files of other programs, whose only content
// is ids (tests/text/token_file_test.cpp has the formats).
#include <gtest/gtest.h>

#include <cmath>

#include "core/io/checksum.hpp"
#include "tests/runner/run_files.hpp"
#include "tests/runner/text_runs.hpp"

namespace tally::testing::text_test {

TEST_F(TextRuns, AreTheSameForAnyThreadsAndAfterAKill) {
  for (const std::string documents : {"separate", "joined"}) {
    const std::string options = " --micro-batch=2 --model.dropout=0.1 --task.documents=" + documents;
    const std::string whole = "whole-" + documents, killed = "killed-" + documents;
    done(training(whole, "--threads=1" + options));
    train_and_kill(killed, "--threads=2" + options);
    done("resume " + killed + " --threads=2 --quiet");
    expect_same_run(folder_ / killed, folder_ / whole);
  }
  // The model's record names the tokenizer by its checksum instead of listing three hundred symbols.
  expect_parts(done("describe whole-joined/checkpoints/" + names_of_checkpoints(folder_ / "whole-joined")[0]),
               {"300 tokens, "});
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

TEST_F(TextRuns, AreComparedOnTheSameTokens) {
  done(training("a"));
  done(training("b", "--seed=2"));
  const auto evaluation = [&](const std::string& run) {
    return file_json(run + "/results.json").elements("evaluations")[0];
  };
  const JsonValue a = evaluation("a"), b = evaluation("b");
  double sum = 0;
  for (const JsonValue& nats : a.at("text").at("parts").elements("nats")) sum += nats.real();
  EXPECT_NEAR(sum, a.real("loss") * static_cast<double>(a.at("text").integer("tokens")), 1e-9);
  expect_parts(done("report a b --paired"), {"| validation |"});
  EXPECT_NEAR(json("report a b --paired").elements("paired")[0].real("difference"), a.real("loss") - b.real("loss"),
              1e-12);
  refused("report a --paired", "two");
  done(training("c", "--task.stride=4"));
  refused("report a c --paired", "the stride is 16 in '", 1);
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

class TextData : public TextRuns {
 protected:
  std::string last(const std::string& run) {
    return file(run + "/checkpoints/" + names_of_checkpoints(folder_ / run).back());
  }
};

// The error names the remedy; the resumed run ends with the same bytes; a different text is refused.
TEST_F(TextData, RunsGoOnWhereTheirTextWasMovedTo) {
  done(training("whole"));
  train_and_kill("moved");
  done(
      "prepare other texts --quiet --tokenizer data/tokenizer.json --validation-part=0.2 --test-part=0.1 --exclude=^3");
  std::filesystem::rename(folder_ / "data", folder_ / "elsewhere");
  const std::string lost = "where its data was moved, 'tally resume RUN --data PATH' says where to";
  refused({{"resume moved", lost},
           {"eval moved", lost},
           {"resume moved --data other", "it was trained on other data: train: "}},
          1);
  done("resume moved --quiet --data elsewhere");
  EXPECT_EQ(last("moved"), last("whole"));

  // A finished run records the new path and keeps its results.
  const std::string results = file("whole/results.json");
  refused({{"resume whole --data other", "other data"}, {"eval whole", lost}}, 1);
  EXPECT_FALSE(holds(done("resume whole --data elsewhere"), "not applied"));
  EXPECT_EQ(file("whole/results.json"), results);
  done("eval whole --quiet");
}

class TokenFiles : public Program {
 protected:
  static constexpr int vocabulary = 50;

  void SetUp() override {
    for (const char* name : {"nanogpt", "uint32"}) std::filesystem::create_directory(folder_ / name);
    write_file(folder_ / "nanogpt/train.bin", tokens(600, 7, 2));
    write_file(folder_ / "nanogpt/val.bin", tokens(90, 11, 2));
    write_file(folder_ / "uint32/train.bin", tokens(600, 7, 4));
    write_file(folder_ / "uint32/val.bin", tokens(90, 11, 4));
    write_file(folder_ / "llm.c_train.bin", llm_c(tokens(600, 7, 2)));
    write_file(folder_ / "llm.c_val.bin", llm_c(tokens(90, 11, 2)));
  }

  // Little-endian, `width` bytes each.
  static std::string tokens(int count, int step, std::size_t width) {
    std::string bytes;
    for (int t = 0; t < count; ++t) {
      bytes += static_cast<char>(t * t / step % vocabulary);
      bytes.append(width - 1, '\0');
    }
    return bytes;
  }
  static std::string llm_c(const std::string& tokens) {
    std::string bytes;
    for (const std::uint32_t word : {20240520u, 1u, static_cast<std::uint32_t>(tokens.size() / 2)}) {
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(word >> shift & 255);
    }
    bytes.resize(1024, '\0');
    return bytes + tokens;
  }
  static std::string training(const std::string& run, const std::string& options) {
    return "train " + run +
           " --task=text --pe=rope --length=16 --model.layers=1 --model.width=8 --model.heads=2 --batch=4 --steps=3"
           " --quiet " +
           options;
  }
  double loss_of(const std::string& run) {
    return file_json(run + "/results.json").elements("evaluations")[0].real("loss");
  }
};

TEST_F(TokenFiles, AreTrainedAndEvaluatedOn) {
  expect_parts(done(training("nano", "--data=nanogpt --vocabulary=50")), {"of 89 tokens", "context 16"});
  done(training("llm", "--data=llm.c_train.bin --task.validation=llm.c_val.bin --vocabulary=50"));
  EXPECT_EQ(checkpoints_of(folder_ / "nano"), checkpoints_of(folder_ / "llm")) << "the same tokens";
  const JsonValue trained = file_json("nano/results.json").elements("evaluations")[0];
  const JsonValue& text = trained.at("text");
  const std::string validation = file("nanogpt/val.bin");
  EXPECT_EQ(text.string("token_checksum"), checksum_text(crc32c(std::as_bytes(std::span(validation)))));
  EXPECT_EQ(text.string("tokenizer_checksum"), "");
  EXPECT_FALSE(text.contains("bits_per_byte")) << "nobody knows what the ids stand for";
  EXPECT_FALSE(text.contains("word_perplexity"));

  const JsonValue evaluated = json("eval nano --data llm.c_val.bin").elements("evaluations")[0];
  EXPECT_EQ(evaluated.string("split"), "test");
  EXPECT_EQ(evaluated.real("loss"), trained.real("loss"));
  expect_parts(tally("generate nano").err, {"the prompt is empty"});
  expect_parts(tally("generate nano --prompt=a").err, {"--tokenizer FILE says what they stand for"});
}

// Ids of 32 bits look like 16-bit ids, each followed by 0.
TEST_F(TokenFiles, AreNeverReadAsOtherIds) {
  done(training("nano", "--data=nanogpt --vocabulary=50"));
  refused(training("refused", "--data=uint32 --vocabulary=50"),
          "train.bin: every second number is 0 if it is read as headerless uint16, so it seems to hold uint32; "
          "--token-type uint32 reads it so");
  done(training("wide", "--data=uint32 --vocabulary=50 --token-type=uint32"));
  EXPECT_EQ(loss_of("nano"), loss_of("wide")) << "the same tokens";
  refused("eval nano --data uint32/val.bin", "--token-type");
  EXPECT_EQ(json("eval nano --data uint32/val.bin --token-type=uint32").elements("evaluations")[0].real("loss"),
            loss_of("nano"));
}

TEST_F(TokenFiles, WhatTheyDoNotSayIsAskedFor) {
  for (const auto& [options, message] : std::vector<Refusal>{
           {"--data=llm.c_train.bin", "--tokenizer FILE does, or --vocabulary N"},
           {"--data=nanogpt --vocabulary=20", "and the vocabulary has 20"},
           {"--data=nanogpt --vocabulary=50 --task.documents=separate", "--tokenizer FILE or --end-token ID names it"},
           {"--data=nanogpt --vocabulary=50 --end-token=</s>", "names of tokens are known with --tokenizer FILE"}}) {
    refused(training("refused", options), message);
  }
  EXPECT_FALSE(exists("refused"));
  done(training("separate", "--data=nanogpt --vocabulary=50 --task.documents=separate --end-token=7"));
  EXPECT_EQ(json("generate separate --count=2").integer("prompt_tokens"), 1);
  done("resume separate --steps=4 --quiet");
  write_file(folder_ / "nanogpt/train.npy", "");
  refused(training("refused", "--data=nanogpt --vocabulary=50"), "two files of the split train");
}

}  // namespace tally::testing::text_test
