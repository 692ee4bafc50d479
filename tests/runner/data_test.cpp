// tally data: the same sequences as text, JSON lines and .npy; what is refused.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/npy.hpp"
#include "tests/runner/program.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::testing {
namespace {

class Data : public ::testing::Test {
 protected:
  Finished data(std::vector<std::string> words) {
    words.insert(words.begin(), "data");
    return run_tally(words, folder_);
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  TemporaryFolder folder_;
};

TEST_F(Data, OneSequenceALine) {
  const auto task = make_task("flip-flop", {{"length", "12"}}, 7);
  const Finished finished =
      data({"--task", "flip-flop", "--length=12", "--seed=7", "--split", "train", "--count", "3", "--start", "4"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const std::vector<std::string> expected{text_of(*task, "train", 4), text_of(*task, "train", 5),
                                          text_of(*task, "train", 6)};
  EXPECT_EQ(lines_of(finished.out), expected);
  EXPECT_EQ(expected[0].size(), 12u);
}

TEST_F(Data, JsonLinesAndTokensHoldTheSame) {
  const std::vector<std::string> what{"--task",  "selective-copy", "--preset", "quick",
                                      "--split", "ood-dense",      "--count",  "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), what.begin(), what.end());
    return data(more);
  };
  const Finished json = with({"--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  ASSERT_EQ(with({"--out", folder_ / "a.jsonl", "--quiet"}).code, 0);
  EXPECT_EQ(read_file(folder_ / "a.jsonl"), json.out);
  ASSERT_EQ(with({"--out", folder_ / "a.txt"}).code, 0);
  EXPECT_EQ(read_file(folder_ / "a.txt"), with({}).out);
  const Finished written = with({"--out", folder_ / "a.npy", "--json"});
  EXPECT_EQ(parse_json(written.out, JsonLimits{}, "data").integer("sequences"), 2);

  const Tensor tokens = read_npy(folder_ / "a.npy");
  EXPECT_EQ(tokens.shape(), (Shape{2, 40}));
  const std::vector<std::int32_t> ids = tokens.to_vector<std::int32_t>();
  std::size_t place = 0;
  for (const std::string& line : lines_of(json.out)) {
    const JsonValue one = parse_json(line, JsonLimits{}, "line");
    for (const JsonValue& token : one.elements("tokens")) EXPECT_EQ(token.integer(), ids[place++]);
    std::int64_t scored = 0;
    for (const JsonValue& mask : one.elements("score_mask")) scored += mask.integer();
    EXPECT_EQ(scored, 16);
    EXPECT_EQ(one.string("text").size(), 40u);
  }
  EXPECT_EQ(place, ids.size());
}

TEST_F(Data, UnequalLengthsAreNoArray) {
  const Finished finished =
      data({"--task", "counting", "--preset", "quick", "--split", "test", "--count", "20", "--out", folder_ / "a.npy"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_NE(finished.err.find("needs equal lengths"), std::string::npos) << finished.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.npy"));
}

TEST_F(Data, WrongUsage) {
  EXPECT_EQ(data({}).code, 2);
  EXPECT_EQ(data({"--task", "flipflop"}).code, 2);
  EXPECT_NE(data({"--task", "flipflop"}).err.find("flip-flop"), std::string::npos);
  EXPECT_EQ(data({"--task", "flip-flop", "--split", "sparse"}).code, 2);
  EXPECT_EQ(data({"--task", "flip-flop", "--length=13"}).code, 2);
  EXPECT_EQ(data({"--task", "flip-flop", "--count", "0"}).code, 2);
  EXPECT_EQ(data({"--task", "flip-flop", "--split", "ood-dense", "--start", "2999", "--count", "2"}).code, 1);
}

}  // namespace
}  // namespace tally::testing
