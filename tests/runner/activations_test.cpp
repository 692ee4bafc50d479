// tally inspect without a page: activations in a file, with their names, shapes and choice of sequences; the summary
// and the answer to a text; refused options. outside_test.cpp checks the numbers, tests/tasks the measurements.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace activations_test {

class InspectRun : public ::testing::Test {
 protected:
  // A trained run with checkpoints of steps 2 and 4.
  void train(const std::string& encoding, const std::vector<std::string>& options = {}) {
    std::filesystem::remove_all(run_);
    ASSERT_EQ(run_tally(tiny_training(run_, encoding, options), folder_).code, 0);
  }
  Finished inspect(std::vector<std::string> words) {
    words.insert(words.begin(), {"inspect", run_, "--threads=1"});
    return run_tally(words, folder_);
  }
  JsonValue json(std::vector<std::string> words) {
    words.emplace_back("--json");
    return json_of(inspect(words));
  }
  SafetensorsFile saved(std::vector<std::string> words) {
    words.insert(words.end(), {"--out", out_});
    const Finished finished = inspect(words);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return SafetensorsFile::open(out_);
  }
  void expect_refused(const std::vector<std::string>& words, const std::string& message, int code = 2) {
    const Finished refused = inspect(words);
    EXPECT_EQ(refused.code, code) << message << refused.err;
    EXPECT_TRUE(holds(refused.err, message)) << message << "\n" << refused.err;
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run", out_ = folder_ / "activations.safetensors", tokens_ = folder_ / "tokens.npy";
};

using Activations = InspectRun;
using Summary = InspectRun;
using Answer = InspectRun;

TEST_F(Activations, HaveTheirNamesTypesAndShapes) {
  train("cope");
  const SafetensorsFile file = saved({"--split", "ood-sparse", "--count", "3", "--gradients"});
  std::map<std::string, std::pair<DType, Shape>> expected{
      {"tokens", {DType::i32, {3, 16}}},        {"targets", {DType::i32, {3, 16}}},
      {"loss_mask", {DType::boolean, {3, 16}}}, {"score_mask", {DType::boolean, {3, 16}}},
      {"logits", {DType::f32, {3, 16, 5}}},     {"loss", {DType::f32, {}}},
  };
  for (const std::string layer : {"0", "1"}) {
    for (const std::string what : {"weights", "gates", "positions", "position_weights"}) {
      expected[formatted("blocks.{}.{}", layer, what)] = {DType::f32, {3, 2, 16, 16}};
    }
  }
  const auto checkpoint = RunFolder::open(run_).open_checkpoint(4);
  for (const StoredTensor& value : checkpoint.tensors("model.")) {
    expected["gradients.model." + value.name] = {value.dtype, value.shape};
  }
  EXPECT_EQ(file.entries().size(), expected.size());
  for (const auto& [name, what] : expected) {
    const SafetensorsEntry* entry = file.find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, what.first) << name;
    EXPECT_EQ(entry->shape, what.second) << name;
  }
  EXPECT_EQ(file.metadata().at("step"), "4");
  EXPECT_EQ(file.metadata().at("split"), "ood-sparse");
}

TEST_F(Activations, MasksAreThoseOfTheTask) {
  train("none", {"--task.loss=all"});
  const SafetensorsFile file = saved({"--split", "ood-sparse", "--count", "2"});
  const std::unique_ptr<Task> task = RunFolder::open(run_).config().make_task();
  std::vector<bool> loss, score;
  for (const Example& example : examples_of(*task, "ood-sparse", 0, 2)) {
    loss.insert(loss.end(), example.loss_mask.begin(), example.loss_mask.end());
    score.insert(score.end(), example.score_mask.begin(), example.score_mask.end());
  }
  ASSERT_NE(loss, score);
  EXPECT_EQ(file.read("loss_mask").to_vector<bool>(), loss);
  EXPECT_EQ(file.read("score_mask").to_vector<bool>(), score);
}

// bf16 values are written as f32.
TEST_F(Activations, OfARunInBf16) {
  train("cope", {"--precision=bf16"});
  const SafetensorsFile file = saved({"--count", "2", "--gradients"});
  for (const SafetensorsEntry& entry : file.entries()) {
    EXPECT_NE(entry.type, "BF16") << entry.name;
    if (entry.type != "F32") continue;
    for (const float value : file.read(entry.name).to_vector<float>()) ASSERT_TRUE(std::isfinite(value)) << entry.name;
  }
  const Tensor weights = file.read("blocks.0.weights");
  const std::vector<float> values = weights.to_vector<float>();
  const auto keys = static_cast<std::size_t>(weights.size(-1));
  for (std::size_t row = 0; row < values.size(); row += keys) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row);
    EXPECT_NEAR(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(keys), 0.0), 1, 0.01);
  }
}

TEST_F(Activations, HaveOnlyWhatTheEncodingHas) {
  train("alibi");
  const SafetensorsFile file = saved({"--count", "1"});
  EXPECT_EQ(file.entries().size(), 10u);
  EXPECT_NE(file.find("blocks.1.weights"), nullptr);
  EXPECT_NE(file.find("blocks.1.position_weights"), nullptr);
  EXPECT_EQ(file.find("blocks.1.gates"), nullptr);
}

TEST_F(Activations, OfTheSequencesAndTheCheckpointThatAreChosen) {
  train("none");
  const auto values = [&](const std::vector<std::string>& words, const char* name) {
    return saved(words).read(name).to(DType::f32).to_vector<float>();
  };
  const auto three = values({"--count", "3"}, "tokens"), third = values({"--count", "1", "--start", "2"}, "tokens");
  EXPECT_EQ(third, std::vector<float>(three.begin() + 32, three.end()));
  const auto earlier = values({"--checkpoint", "2"}, "logits"), last = values({}, "logits");
  EXPECT_NE(earlier, last);
  EXPECT_EQ(SafetensorsFile::open(out_).metadata().at("step"), "4");
  EXPECT_EQ(inspect({"--out", out_, "--checkpoint", "best"}).code, 0);
  expect_refused({"--checkpoint", "3"}, "keeps no checkpoint of step 3; it has 2, 4", 1);
  expect_refused({"--checkpoint", "4x"}, "neither newest, best nor a step");
  // A damaged checkpoint is passed over.
  const std::string newest = run_ + "/checkpoints/step-00000004.safetensors";
  std::string bytes = read_file(newest);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(newest, bytes);
  EXPECT_TRUE(holds(inspect({"--out", out_}).err, "passed over"));
  EXPECT_EQ(SafetensorsFile::open(out_).metadata().at("step"), "2");
}

TEST_F(Activations, TokensOfAFilePredictTheNextToken) {
  train("rope");
  const std::vector<std::int32_t> tokens{0, 3, 2, 4, 1, 3, 0, 4, 1, 4};
  write_npy(tokens_, Tensor::from(tokens, {2, 5}));
  const SafetensorsFile file = saved({"--tokens", tokens_, "--gradients"});
  EXPECT_EQ(file.read("tokens").to_vector<std::int32_t>(), tokens);
  EXPECT_EQ(file.read("targets").to_vector<std::int32_t>(), (std::vector<std::int32_t>{3, 2, 4, 1, 0, 0, 4, 1, 4, 0}));
  const std::vector<bool> mask{true, true, true, true, false, true, true, true, true, false};
  EXPECT_EQ(file.read("loss_mask").to_vector<bool>(), mask);
  EXPECT_EQ(file.read("score_mask").to_vector<bool>(), mask);

  write_npy(tokens_, Tensor::from(std::vector<std::int64_t>{0, 1, 5}, {1, 3}));
  expect_refused({"--tokens", tokens_}, "token 2 of sequence 0 is 5, the vocabulary has ids 0 to 4", 1);
  write_npy(tokens_, Tensor::from(std::vector<float>{0, 1}, {1, 2}));
  expect_refused({"--tokens", tokens_}, "must hold i32 or i64", 1);
  write_npy(tokens_, Tensor::from(std::vector<std::int32_t>{1}, {1, 1}));
  expect_refused({"--tokens", tokens_}, "two tokens", 1);
  expect_refused({"--tokens", tokens_, "--split", "train"}, "excludes");
}

TEST_F(Summary, CoversEveryHead) {
  train("cope");
  const JsonValue told = json({"--count=4", "--split=ood-dense"});
  EXPECT_EQ(told.string("split"), "ood-dense");
  EXPECT_EQ(told.integer("sequences"), 4);
  const JsonValue &scored = told.at("tables").at("scored"), &all = told.at("tables").at("all");
  ASSERT_EQ(scored.elements().size(), 2u);  // gates and attention
  EXPECT_TRUE(scored.elements()[0].string("title").starts_with("gates: "));
  for (std::size_t head = 0; head < 4; ++head) {  // two layers of two heads
    const auto row = [&](const JsonValue& tables, std::size_t n) {
      return tables.elements()[n].elements("rows").at(head);
    };
    // Every query sees the first token, a write, so the 4 x 16 queries have at least that many pairs.
    EXPECT_GE(row(all, 0).at("w").integer("n"), 64);
    EXPECT_EQ(row(all, 1).at("w").integer("n"), 64);
    const JsonValue attention = row(scored, 1);
    EXPECT_EQ(attention.at("source_attention").integer("n"), told.integer("scored"));
    double sum = 0;  // the attention of a query over all roles sums to 1
    for (const JsonMember& member : attention.members()) {
      if (member.value.is_object() && !member.name.starts_with("source")) sum += member.value.real("mean");
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST_F(Summary, PrintsTables) {
  train("cope");
  const Finished told = inspect({"--count=4"});
  ASSERT_EQ(told.code, 0) << told.err;
  for (const char* part : {"in-distribution: 4 sequences, wrong ", "gates: g_ij", "over scored queries", "| bit of w",
                           "| layer 1 head 1 |", "the answer's token", "its position"}) {
    EXPECT_TRUE(holds(told.out, part)) << part << "\n" << told.out;
  }
  EXPECT_TRUE(holds(inspect({"--queries=all"}).out, "over all queries"));
  EXPECT_TRUE(holds(inspect({"--start=1"}).out, "in-distribution: 5 sequences, wrong ")) << "the split has 6";
  for (const auto& [encoding, title] :
       {std::pair{"fox", "forgets: 1 - f_j"}, {"stick-breaking", "breaks: the share"}, {"none", "attention: "}}) {
    train(encoding);
    const std::string text = inspect({"--count=4"}).out;
    EXPECT_TRUE(holds(text, title) && !holds(text, "its position")) << text;
  }
}

TEST_F(Answer, AgreesWithTheActivations) {
  train("cope", {"--optimiser.lr=0.02"});
  const std::vector<std::int32_t> tokens{0, 3, 2, 4, 2, 4, 1};
  const std::string vocabulary = "wri01";
  const SafetensorsFile dump = saved({"--text", "w0i1i1r"});
  EXPECT_EQ(dump.read("tokens").to_vector<std::int32_t>(), tokens);
  const std::vector<float> logits = dump.read("logits").to_vector<float>();
  const std::vector<float> weights = dump.read("blocks.1.weights").to_vector<float>();
  const std::vector<float> positions = dump.read("blocks.1.positions").to_vector<float>();

  const JsonValue told = json({"--text", "w0i1i1r", "--top", "5"});
  double sum = 0;
  for (std::size_t id = 0; id < 5; ++id) sum += std::exp(static_cast<double>(logits[6 * 5 + id]));
  ASSERT_EQ(told.elements("candidates").size(), 5u);
  double before = 1;
  for (const JsonValue& candidate : told.elements("candidates")) {
    const std::size_t id = vocabulary.find(candidate.string("symbol"));
    EXPECT_NEAR(candidate.real("probability"), std::exp(static_cast<double>(logits[6 * 5 + id])) / sum, 1e-6);
    EXPECT_LE(candidate.real("probability"), before);
    before = candidate.real("probability");
  }
  ASSERT_EQ(told.elements("attention").size(), 4u);  // two layers of two heads
  const JsonValue& last = told.elements("attention")[3];
  EXPECT_EQ(last.integer("layer"), 1);
  EXPECT_EQ(last.integer("head"), 1);
  EXPECT_EQ(last.elements("keys").size(), 5u);
  before = 1;
  for (const JsonValue& key : last.elements("keys")) {
    const auto token = static_cast<std::size_t>(key.integer("place"));
    const std::size_t element = (1 * 7 + 6) * 7 + token;  // of head 1, query 6
    EXPECT_NEAR(key.real("weight"), static_cast<double>(weights[element]), 1e-6);
    EXPECT_NEAR(key.real("position"), static_cast<double>(positions[element]), 1e-5);
    EXPECT_EQ(key.string("symbol"), std::string(1, vocabulary[static_cast<std::size_t>(tokens[token])]));
    EXPECT_LE(key.real("weight"), before);
    before = key.real("weight");
  }
}

TEST_F(Answer, PrintsCandidatesAndATableOfHeads) {
  train("alibi");
  const Finished finished = inspect({"--text", "w0i1r"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(finished.out.starts_with("answer: ") && holds(finished.out, ", then ")) << finished.out;
  EXPECT_TRUE(holds(finished.out, "| layer 1 head 0 | ")) << finished.out;
}

TEST_F(InspectRun, RefusesWhatHasNoEffectOrDoesNotExist) {
  train("absolute");
  expect_refused({"--split", "ood-spars"}, "ood-sparse");
  expect_refused({"--split", "ood-dense", "--start", "3", "--count", "2"},
                 "ood-dense has 4 sequences, asked for 2 from number 3 on");
  expect_refused({"--split", "ood-dense", "--start", "4", "--count", "1"}, "asked for 4");
  expect_refused({"--count", "1000"}, "in-distribution has 6 sequences, asked for 1000 from number 0 on");
  expect_refused({"--count", "0"}, "0 not in range");
  expect_refused({"--queries=some"}, "--queries");
  expect_refused({"--text", "w0x"}, "symbol 3 is 'x'");
  expect_refused({"--text", "w0i1i1i1i1i1i1i1i1r"}, "the table has 16 positions", 1);
  expect_refused({"--gradients"}, "--gradients has no effect without --out; it is for .safetensors");
  expect_refused({"--gradients", "--out", folder_ / "page.html"}, "--gradients has no effect with --out ");
  expect_refused({"--mark=x", "--out", out_}, "it is for .html or .htm");
  expect_refused({"--top=3"}, "--top requires --text");
  expect_refused({"--queries=all", "--text=w0r"}, "excludes --queries");
  expect_refused({"--out", folder_ / "x"}, "end in .html, .htm, .safetensors");
  EXPECT_EQ(run_tally({"inspect", folder_ / "nothing"}, folder_).code, 1);
  std::filesystem::remove_all(run_ + "/checkpoints");
  expect_refused({"--text=w0"}, "no checkpoint", 1);
}

}  // namespace activations_test
}  // namespace tally::testing
