// metrics.jsonl: written lines are read back; a truncated last line is ignored, an invalid record is reported with its
// line.
#include "tasks/runs/metrics.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/error_of.hpp"

namespace tally::metrics_test {

class MetricsFile : public ::testing::Test {
 protected:
  ~MetricsFile() override { std::filesystem::remove(path_); }

  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string get() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string path_ =
      (std::filesystem::temp_directory_path() / formatted("tally_metrics_test_{}.jsonl", getpid())).string();
};

std::vector<MetricsRecord> one_of_each() {
  Evaluation e;
  e.split = "ood";
  e.loss = 0.1;
  e.scored = 7, e.wrong = 3, e.sequences = 2, e.wrong_sequences = 1;
  return {RunRecord{JsonValue::object({{"run", "tally"}, {"seed", 3}})}, StartRecord{0, Machine::here()},
          StepReport{.step = 5,
                     .loss = 1.0 / 3,
                     .token_error = 0.25,
                     .sequence_error = 1,
                     .lr = 1e-3,
                     .grad_norm = 2.5,
                     .tokens = 640,
                     .seconds = 0.125},
          Measurement{5, e}, DivergenceRecord{6, "the loss"}};
}

TEST_F(MetricsFile, WhatIsWrittenIsRead) {
  EXPECT_TRUE(read_metrics(path_).empty());
  MetricsWriter writer(path_);
  for (const MetricsRecord& record : one_of_each()) writer.write(record);
  writer.sync();
  const std::string text = get();
  EXPECT_NE(text.find(R"({"step":5,"split":"train","loss":0.3333333333333333,"token_error":0.25,"sequence_error":1.0,)"
                      R"("lr":0.001,"grad_norm":2.5,"tokens":640,"seconds":0.125})"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"({"step":5,"split":"ood","loss":0.1,"token_error":0.42857142857142855,"sequence_error":0.5,)"
                      R"("wrong":3,"scored":7,"wrong_sequences":1,"sequences":2})"),
            std::string::npos)
      << text;

  const std::vector<MetricsRecord> read = read_metrics(path_);
  ASSERT_EQ(read.size(), 5u);
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i].index(), i);
  const std::vector<std::int64_t> steps{0, 0, 5, 5, 6};
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(step_of(read[i]), steps[i]);
  EXPECT_TRUE(all_of<StartRecord>(read)[0].machine == Machine::here());
  rewrite_metrics(path_, read);
  EXPECT_EQ(get(), text);
}

TEST_F(MetricsFile, ACutLastLineIsLeftOut) {
  rewrite_metrics(path_, one_of_each());
  const std::string text = get();
  for (const std::size_t cut : {1u, 2u, 20u}) {
    put(text.substr(0, text.size() - cut));
    EXPECT_EQ(read_metrics(path_).size(), 4u) << cut;
  }
}

TEST_F(MetricsFile, WhatIsNoRecordIsNamed) {
  rewrite_metrics(path_, one_of_each());
  const std::string text = get();
  for (const char* line :
       {"5", "[]", "null", R"({"step":"two"})", R"({"step":2})", R"({"step":2,"split":"train"})",
        R"({"step":2,"split":"ood"})", R"({"step":1e999})", R"({"step":2,"diverged":3})", R"({"step":2,"start":3})"}) {
    put(text + line + "\n" + text);
    const std::string error = testing::error_of([&] { read_metrics(path_); });
    EXPECT_NE(error.find(path_ + ", line 6"), std::string::npos) << line << error;
  }
}

// As null: other programs cannot read NaN.
TEST_F(MetricsFile, NumbersThatAreNotFiniteComeBackAsNaN) {
  MetricsWriter writer(path_);
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  writer.write(StepReport{.step = 4,
                          .loss = nan,
                          .token_error = nan,
                          .sequence_error = nan,
                          .lr = nan,
                          .grad_norm = infinity,
                          .seconds = nan});
  EXPECT_NE(get().find("\"grad_norm\":null"), std::string::npos) << get();
  const std::vector<MetricsRecord> read = read_metrics(path_);
  ASSERT_EQ(read.size(), 1u);
  const StepReport all = std::get<StepReport>(read[0]);
  for (const double number : {all.loss, all.token_error, all.sequence_error, all.lr, all.grad_norm, all.seconds}) {
    EXPECT_TRUE(std::isnan(number)) << number;
  }
}

}  // namespace tally::metrics_test
