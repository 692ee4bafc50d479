// tally predict: the same numbers as a dump of the same tokens, and refused options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "tests/runner/program.hpp"

namespace tally::testing {
namespace predict_test {

class Predict : public ::testing::Test {
 protected:
  void train(const std::string& encoding) {
    ASSERT_EQ(run_tally(tiny_training(run_, encoding, {"--optimiser.lr=0.02"}), folder_).code, 0);
  }
  Finished predict(std::vector<std::string> words) {
    words.insert(words.begin(), {"predict", run_});
    return run_tally(words, folder_);
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";
};

// Symbol after symbol, as if the user had typed each one.
TEST_F(Predict, FeedsItsAnswersBack) {
  train("cope+rope");
  std::string text = "w0i1r";
  double probability = 1;
  for (int n = 0; n < 4; ++n) {
    const Finished one = predict({text, "--json"});
    ASSERT_EQ(one.code, 0) << one.err;
    const JsonValue json = parse_json(one.out, JsonLimits{}, "predict");
    text += json.string("answer");
    probability *= json.real("probability");
  }
  const Finished four = predict({"w0i1r", "--symbols", "4", "--json"});
  ASSERT_EQ(four.code, 0) << four.err;
  const JsonValue json = parse_json(four.out, JsonLimits{}, "predict");
  EXPECT_EQ(json.string("answer"), text.substr(5));
  EXPECT_NEAR(json.real("probability"), probability, 1e-5 * probability);
  EXPECT_EQ(predict({"w0i1r", "--symbols", "4", "--quiet"}).out, text.substr(5) + "\n");
  EXPECT_EQ(predict({"w0i1r", "--symbols", "0"}).code, 2);
}

TEST_F(Predict, AgreesWithTheDump) {
  train("cope");
  const std::vector<std::int32_t> tokens{0, 3, 2, 4, 2, 4, 1};
  const std::string vocabulary = "wri01";
  write_npy(folder_ / "tokens.npy", Tensor::from(tokens, {1, 7}));
  ASSERT_EQ(run_tally({"dump", run_, "--tokens", folder_ / "tokens.npy", "--out", folder_ / "dump"}, folder_).code, 0);
  const SafetensorsFile dump = SafetensorsFile::open(folder_ / "dump");
  const std::vector<float> logits = dump.read("logits").to_vector<float>();
  const std::vector<float> weights = dump.read("blocks.1.weights").to_vector<float>();
  const std::vector<float> positions = dump.read("blocks.1.positions").to_vector<float>();

  const Finished finished = predict({"w0i1i1r", "--json", "--top", "5"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const JsonValue json = parse_json(finished.out, JsonLimits{}, "predict");
  double sum = 0;
  for (std::size_t id = 0; id < 5; ++id) sum += std::exp(static_cast<double>(logits[6 * 5 + id]));
  ASSERT_EQ(json.elements("candidates").size(), 5u);
  double before = 1;
  for (const JsonValue& candidate : json.elements("candidates")) {
    const std::size_t id = vocabulary.find(candidate.string("symbol"));
    EXPECT_NEAR(candidate.real("probability"), std::exp(static_cast<double>(logits[6 * 5 + id])) / sum, 1e-6);
    EXPECT_LE(candidate.real("probability"), before);
    before = candidate.real("probability");
  }
  EXPECT_EQ(json.string("answer"), json.elements("candidates")[0].string("symbol"));

  ASSERT_EQ(json.elements("attention").size(), 4u);  // two layers of two heads
  const JsonValue& last = json.elements("attention")[3];
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

TEST_F(Predict, Text) {
  train("alibi");
  const Finished finished = predict({"w0i1r"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_NE(finished.out.find("layer 1 head 0:"), std::string::npos) << finished.out;
  const Finished quiet = predict({"w0i1r", "--quiet"});
  EXPECT_EQ(quiet.out, finished.out.substr(0, 1) + "\n");
}

TEST_F(Predict, WordsMayStandApart) {
  ASSERT_EQ(run_tally({"train", run_, "--task=counting", "--pe=none", "--preset=quick", "--steps=1", "--batch=2",
                       "--optimiser.warmup=0", "--task.eval-count=2", "--quiet"},
                      folder_)
                .code,
            0);
  const Finished apart = predict({"a", "=", "0", ";", "print", "a"});
  EXPECT_EQ(apart.code, 0) << apart.err;
  EXPECT_EQ(predict({"a = 0 ; print a"}).out, apart.out);

  std::filesystem::remove_all(run_ + "/checkpoints");
  EXPECT_NE(predict({"print", "a"}).err.find("no checkpoint"), std::string::npos);
}

TEST_F(Predict, WrongUsage) {
  train("absolute");
  EXPECT_EQ(predict({"w0x"}).code, 2);
  EXPECT_NE(predict({"w0x"}).err.find("symbol 3 is 'x'"), std::string::npos);
  EXPECT_EQ(predict({""}).code, 2);
  EXPECT_EQ(predict({}).code, 2);
  const Finished longer = predict({"w0i1i1i1i1i1i1i1i1r"});  // 19 symbols, trained on 16
  EXPECT_EQ(longer.code, 1);
  EXPECT_NE(longer.err.find("the table has 16 positions"), std::string::npos) << longer.err;
}

}  // namespace predict_test
}  // namespace tally::testing
