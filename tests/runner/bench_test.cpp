// tally bench: figures as JSON, no system memory taken in a steady step, several encodings in turns.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/cpu/parallel.hpp"
#include "core/io/json.hpp"
#include "tests/devices.hpp"
#include "tests/runner/bench_fixture.hpp"

namespace tally::testing {
namespace bench_test {

TEST_F(Bench, StepAsOneObject) {
  const JsonValue json =
      bench_json({"step", "--pe", "cope", "--pe.p-max=8", "--model.layers=2", "--steps=3", "--warmup=1"});
  EXPECT_EQ(json.string("pe"), "cope");
  EXPECT_EQ(json.integer("width"), 16);
  EXPECT_EQ(json.integer("length"), 24);
  EXPECT_GT(json.real("min_s"), 0);
  EXPECT_LE(json.real("min_s"), json.real("step_s"));
  EXPECT_LE(json.real("step_s"), json.real("max_s"));
  EXPECT_NEAR(static_cast<double>(json.integer("tokens_per_s")), 2 * 24 / json.real("step_s"), 1);
  EXPECT_GT(json.integer("peak_rss_mib"), 0);
  EXPECT_EQ(json.at("machine").integer("threads"), 1);
  EXPECT_FALSE(json.at("machine").string("blas").empty());
  // Embedding and head, final norm; in each block two norms, q k v o, up and down, 9 positions of 8.
  const std::int64_t block = 4 * 16 + 4 * (16 * 16 + 16) + (64 * 16 + 64) + (16 * 64 + 16) + 9 * 8;
  EXPECT_EQ(json.integer("parameters"), 2 * 5 * 16 + 2 * 16 + 2 * block);
  EXPECT_EQ(json.integer("vocab"), 5);  // of flip-flop
}

// A step of bench equals a step of `train` with its batches and options: the same loss and norm after the same number
// of steps.
TEST_F(Bench, StepIsThatOfTraining) {
  const std::vector<std::string> options{"--pe=cope",
                                         "--task=selective-copy",
                                         "--preset=quick",
                                         "--task.blanks=6",
                                         "--task.dense-blanks=2",
                                         "--task.sparse-blanks=8",
                                         "--task.eval-count=2",
                                         "--batch=3",
                                         "--seed=5",
                                         "--model.layers=1",
                                         "--model.width=8",
                                         "--model.heads=2",
                                         "--model.dropout=0.1",
                                         "--optimiser.lr=0.03",
                                         "--optimiser.schedule=constant",
                                         "--optimiser.warmup=2",
                                         "--threads=1"};
  const auto with = [&](std::vector<std::string> words, const std::string& clip) {
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("--optimiser.clip=" + clip);
    return words;
  };
  const auto bench_line = [&](const std::string& clip) {
    const Finished timed = run_tally(with({"bench", "step", "--steps=3", "--warmup=1", "--json"}, clip), folder_);
    EXPECT_EQ(timed.code, 0) << timed.err;
    return parse_json(timed.out, JsonLimits{}, "bench");
  };
  const std::string run = folder_ / "run";
  const Finished trained = run_tally(
      with({"train", run, "--steps=4", "--log-every=1", "--eval-every=0", "--eval-count=0", "--quiet"}, "0.01"),
      folder_);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const JsonValue clipped = bench_line("0.01");
  bool found = false;
  for (const std::string& text : metrics_of(run)) {
    const JsonValue line = parse_json(text, {}, "metrics");
    if (!line.contains("grad_norm") || line.integer("step") != 4) continue;
    found = true;
    EXPECT_EQ(line.real("loss"), clipped.real("loss"));
    EXPECT_EQ(line.real("grad_norm"), clipped.real("grad_norm"));
  }
  EXPECT_TRUE(found);
  EXPECT_NE(bench_line("0").real("loss"), clipped.real("loss"));
  EXPECT_EQ(clipped.integer("length"), 16 + 6 + 16);  // trained on; evaluation has longer sequences
}

TEST_F(Bench, SizeOfAModelThatIsNotMade) {
  const JsonValue json =
      bench_json({"step", "--dry-run", "--pe", "0:none,1:cope", "--pe.p-max=8", "--model.layers=2", "--vocab=7"});
  EXPECT_EQ(json.integer("encoding_parameters"), 9 * 8);
  // Two blocks of 12 D^2 + 13 D, two embeddings of 7 rows, the last norm.
  EXPECT_EQ(json.integer("parameters"), 2 * (12 * 256 + 13 * 16) + 2 * 7 * 16 + 2 * 16 + 9 * 8);
  const Finished large = bench(
      {"step", "--dry-run", "--pe", "cope", "--vocab=50257", "--model.layers=500", "--set", "model.hidden=64,1048576"});
  EXPECT_EQ(large.code, 0) << large.err;
  EXPECT_NE(large.out.find("GiB"), std::string::npos) << large.out;
}

// To the byte: the same step really runs, and runs on a counting device.
TEST_F(Bench, SizeTellsTheMemoryOfAStep) {
  for (const char* encoding : {"none", "cope", "alibi"}) {
    const double told = bench_json({"step", "--dry-run", "--pe", encoding, "--model.layers=2"}).real("memory_bytes");
    const JsonValue step = bench_json({"step", "--pe", encoding, "--model.layers=2", "--steps=2", "--warmup=0"});
    EXPECT_EQ(told, step.real("tensor_peak_bytes")) << encoding;
  }
  const Finished text = bench({"step", "--dry-run", "--pe", "cope"});
  EXPECT_NE(text.out.find("memory of a step"), std::string::npos) << text.out;
  EXPECT_EQ(bench({"step", "--dry-run", "--pe=relative", "--pe.distances=23"}).code, 2);
}

// Options of the parts that attention does not have are unknown to it.
TEST_F(Bench, AttentionHasOnlyOptionsThatChangeIt) {
  for (const char* option :
       {"--model.hidden=64", "--model.tied", "--optimiser.name=sgd", "--seed=5", "--vocab=7", "--set=model.norm=rms"}) {
    EXPECT_EQ(bench({"attention", option, "--dry-run"}).code, 2) << option;
  }
  EXPECT_EQ(bench({"attention", "--pe=0:none,1:cope", "--model.layers=2", "--dry-run"}).code, 0);
  for (const char* option : {"--steps=3", "--warmup=0", "--rounds=2"}) {
    EXPECT_EQ(bench({"step", "--dry-run", option}).code, 2) << option;
  }
}

TEST_F(Bench, ADryRunTellsWhatThereWouldBe) {
  const std::vector<std::string> model{"--pe", "0:none,1:cope", "--pe.p-max=8", "--model.layers=2"};
  const auto of = [&](std::vector<std::string> words) {
    words.insert(words.end(), model.begin(), model.end());
    return words;
  };
  EXPECT_FALSE(bench_json(of({"step", "--dry-run"})).contains("step_s"));
  // The encoding of the first layer, which is the measured one.
  const std::vector<std::string> second{"attention", "--dry-run", "--pe=0:none,1:cope", "--model.layers=2"};
  EXPECT_EQ(bench_json(second).integer("encoding_parameters"), 0);
  const JsonValue attention = bench_json({"attention", "--dry-run", "--pe=cope", "--pe.p-max=8"});
  EXPECT_EQ(attention.integer("encoding_parameters"), 9 * 8);
  EXPECT_GT(attention.real("memory_bytes"), 14 * 4 * 2 * 24 * 16);
  EXPECT_FALSE(attention.contains("forward_s"));
  // Refused like the run itself.
  EXPECT_EQ(bench({"attention", "--dry-run", "--pe=relative", "--pe.distances=23"}).code, 2);
}

TEST_F(Bench, RefusesWhatAnEncodingDoesNotTake) {
  for (const char* what : {"step", "attention"}) {
    const Finished finished = bench({what, "--pe=relative", "--pe.distances=23"});
    EXPECT_EQ(finished.code, 2) << what;
    EXPECT_NE(finished.err.find("the table has 23 distances, the sequence 24 tokens"), std::string::npos)
        << finished.err;
    EXPECT_EQ(bench({what, "--pe=relative", "--pe.distances=24", "--steps=1", "--warmup=0"}).code, 0) << what;
  }
}

TEST_F(Bench, AStepBesideAMatrixProduct) {
  const JsonValue json = bench_json({"step", "--pe", "none", "--model.layers=3", "--steps=1"});
  // Six operations for every weight of a matrix and token; seven matmuls of queries and keys, half of each above the
  // diagonal.
  const double matrices = 3 * (4 * 16 * 16 + 2 * 4 * 16 * 16) + 5 * 16, tokens = 2 * 24;
  const double flops = 6 * matrices * tokens + 7 * 3 * 2 * 16 * 24 * 24;
  EXPECT_NEAR(json.real("gflop"), flops / 1e9, 1e-15);
  EXPECT_GT(json.real("gemm_gflop_per_s"), 0);
  EXPECT_NEAR(json.real("share_of_gemm"), flops / 1e9 / json.real("step_s") / json.real("gemm_gflop_per_s"), 1e-9);
}

TEST_F(Bench, AttentionAlone) {
  for (const char* encoding : {"none", "cope+rope", "relative"}) {
    const JsonValue json = bench_json({"attention", "--pe", encoding, "--steps=3", "--warmup=1", "--dtype=f64"});
    EXPECT_EQ(json.string("pe"), encoding);
    EXPECT_EQ(json.string("attention"), "tiled");
    for (const std::string direction : {"forward", "backward", "both"}) {
      EXPECT_GT(json.real(direction + "_min_s"), 0);
      EXPECT_LE(json.real(direction + "_min_s"), json.real(direction + "_s"));
      EXPECT_LE(json.real(direction + "_s"), json.real(direction + "_max_s"));
    }
    EXPECT_NEAR(json.real("forward_gflop_per_s"), 2 * 2 * 16 * 24 * 24 / json.real("forward_s") / 1e9, 1e-9);
    EXPECT_NEAR(json.real("backward_gflop_per_s"), 5 * 2 * 16 * 24 * 24 / json.real("backward_s") / 1e9, 1e-9);
    EXPECT_NEAR(static_cast<double>(json.integer("tokens_per_s")), 2 * 24 / json.real("both_s"), 1);
    EXPECT_TRUE(json.contains("machine"));
  }
}

// Reports the attention that ran, not the requested one: an encoding may need materialised weights.
TEST_F(Bench, NamesTheFormThatRan) {
  const auto form = [&](const std::string& work, const std::string& encoding, const std::string& asked = "tiled") {
    std::vector<std::string> words{work, "--pe", encoding, "--steps=1", "--warmup=0", "--model.attention=" + asked};
    if (work == "step" || encoding.find(':') != std::string::npos) words.emplace_back("--model.layers=2");
    return bench_json(words).string("attention");
  };
  EXPECT_EQ(form("attention", "hard"), "composed");
  EXPECT_EQ(form("step", "alibi+hard"), "composed");
  EXPECT_EQ(form("attention", "0:none,1:hard"), "tiled");
  EXPECT_EQ(form("step", "0:none,1:hard"), "tiled and composed");
  EXPECT_EQ(form("attention", "hard@0,cope@1"), "tiled and composed");
  EXPECT_EQ(form("step", "stick-breaking"), "tiled");
  EXPECT_EQ(form("step", "cope", "composed"), "composed");
  const Finished text = bench({"attention", "--pe=hard", "--steps=1", "--warmup=0"});
  EXPECT_NE(text.out.find("| composed  |\n"), std::string::npos) << text.out;
}

// Reference attention materialises T x T numbers, and several such tensors for cope; fused attention does not.
TEST_F(Bench, AttentionTakesMemoryByItsForm) {
  const JsonValue json = bench_json({"attention", "--pe", "cope", "--steps=1", "--warmup=0", "--set", "length=2048",
                                     "--set", "batch=1", "--set", "model.attention=tiled,composed"});
  const std::int64_t square_mib = 2 * 2048 * 2048 * 4 / (1 << 20);
  EXPECT_LT(json.elements("variants")[0].integer("tensor_peak_mib"), square_mib);
  EXPECT_GT(json.elements("variants")[1].integer("tensor_peak_mib"), 3 * square_mib);
}

// Memory is counted on the device that did the work. There would be none if the CPU had done it.
TEST_F(Bench, MeasuresTheDeviceThatIsNamed) {
  for (const char* work : {"attention", "step"}) {
    const JsonValue json = bench_json({work, "--pe=cope", "--steps=1", "--warmup=0", "--set", "length=128", "--set",
                                       "model.width=64", "--set", "batch=4", "--device=cuda-host"});
    EXPECT_GE(json.integer("tensor_peak_mib"), 1) << work;
  }
}

// A replayed step takes its memory at capture, at least as much as a step that runs kernel by kernel.
TEST_F(Bench, CountsTheMemoryOfAReplayedStep) {
  if (repeats_show_nothing()) GTEST_SKIP() << "under AddressSanitizer";
  const auto peak = [&](const std::string& waits) {
    const Finished finished = run_program(
        {"/usr/bin/env", "TALLY_CUDA_SYNC=" + waits, TALLY_RUNNER, "bench", "step", "--pe=cope", "--device=cuda-host",
         "--steps=1", "--warmup=2", "--length=64", "--batch=4", "--model.width=64", "--threads=1", "--json"},
        folder_);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return parse_json(finished.out, JsonLimits{}, "bench").integer("tensor_peak_mib");
  };
  const std::int64_t replayed = peak("0"), called = peak("1");
  EXPECT_GE(replayed, called);
  // Parameters, gradients and moments are under 4 MiB; the saved activations are the rest.
  EXPECT_GE(called, 8);
}

TEST_F(Bench, EveryCombinationOfSettings) {
  const JsonValue json = bench_json(
      {"attention", "--pe", "cope", "--steps=1", "--warmup=0", "--set", "pe.p-max=4,9", "--set", "length=8,16"});
  ASSERT_EQ(json.elements("variants").size(), 4u);
  const JsonValue& third = json.elements("variants")[2];
  EXPECT_EQ(third.string("pe.p-max"), "9");
  EXPECT_EQ(third.string("length"), "8");
  const Finished text = bench({"step", "--pe", "cope", "--steps=1", "--warmup=0", "--set", "pe.p-max=4,9"});
  EXPECT_NE(text.out.find("\n| 9        | "), std::string::npos) << text.out;
}

// Parameters without gradients have no optimiser state, as in training.
TEST_F(Bench, AStepTrainsWhatIsNamed) {
  const JsonValue json = bench_json({"step", "--pe", "cope", "--steps=1", "--warmup=0", "--set", "train=all,pe.*"});
  const JsonValue::Array& variants = json.elements("variants");
  ASSERT_EQ(variants.size(), 2u);
  EXPECT_LT(variants[1].real("tensor_peak_bytes"), variants[0].real("tensor_peak_bytes"));
  EXPECT_NE(bench({"step", "--steps=1", "--set", "train=nothing.*"}).code, 0);
}

TEST_F(Bench, ASteadyStepTakesNoMemoryFromTheSystem) {
#ifdef TALLY_SANITIZED
  GTEST_SKIP() << "under a sanitizer every block is taken from the system";
#endif
  for (const char* encoding : {"cope", "alibi", "relative", "rope"}) {
    const JsonValue json = bench_json({"step", "--pe", encoding, "--steps=4", "--warmup=2"});
    EXPECT_EQ(json.real("system_allocations_per_step"), 0) << encoding;
  }
}

// One line per encoding, compared with the first. Only the encoding differs between lines.
TEST_F(Bench, SeveralEncodingsInTurns) {
  for (const std::string work : {"step", "attention"}) {
    const JsonValue json = bench_json(
        {work, "--pe=none,cope+rope,alibi[window=5,first=2]", "--pe.cope.p-max=4", "--steps=1", "--rounds=2"});
    EXPECT_EQ(json.integer("rounds"), 2);
    const JsonValue::Array& lines = json.elements("variants");
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].string("pe"), "none");
    EXPECT_EQ(lines[0].real("ratio"), 1);
    EXPECT_EQ(lines[1].string("pe"), "cope+rope");
    EXPECT_EQ(lines[2].string("pe"), "alibi[window=5,first=2]");
    for (const JsonValue& line : lines) EXPECT_GT(line.real("ratio"), 0);
    if (work == "step") {  // the option applied only to the encoding that has it
      EXPECT_EQ(lines[1].integer("parameters") - lines[0].integer("parameters"), 4 * 5 * 8);
    }
  }
  const Finished text = bench({"attention", "--pe=none,hard", "--steps=1", "--warmup=0"});
  for (const char* part : {"| encoding | ", "of the first's time", "of 3 rounds", "\n| hard     | ", " composed "}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
  const JsonValue sizes = bench_json({"step", "--dry-run", "--pe=none;0:cope,1-3:none"});
  EXPECT_EQ(sizes.elements("variants").size(), 2u);
  EXPECT_FALSE(sizes.elements("variants")[1].contains("ratio"));
}

TEST_F(Bench, WrongUsage) {
  EXPECT_EQ(bench({"stp"}).code, 2);
  EXPECT_EQ(bench({}).code, 2);
  EXPECT_EQ(bench({"step", "--steps=0"}).code, 2);
  EXPECT_EQ(bench({"step", "--pe", "alib"}).code, 2);
  EXPECT_EQ(bench({"step", "--pe", "alibi", "--pe.p-max=3"}).code, 2);
  EXPECT_EQ(bench({"step", "--model.layers=0"}).code, 2);
  for (const char* set : {"pe.p-max", "pe.p-max=4,x", "pe.base=3", "length=0", "length=8,1e3", "batch=-1", "step=3",
                          "task.lenth=8", "model.heads=3", "model.attention=tiles"}) {
    const Finished finished = bench({"attention", "--pe", "cope", "--set", set});
    EXPECT_EQ(finished.code, 2) << set;
    EXPECT_EQ(finished.out, "") << set;
  }
  EXPECT_EQ(bench({"attention", "--set", "length=8", "--set", "length=16"}).code, 2);
  EXPECT_EQ(bench({"ops"}).code, 2);
  EXPECT_EQ(bench({"step", "--vocab=7"}).code, 2);
  for (const char* encodings : {"--pe=none,cpoe", "--pe=none,"}) EXPECT_EQ(bench({"step", encodings}).code, 2);
}

}  // namespace bench_test
}  // namespace tally::testing
