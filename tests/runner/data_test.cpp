// tally data: the same sequences as text, JSON lines and .npy; refused options.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/npy.hpp"
#include "tests/runner/run_files.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::testing {
namespace data_test {

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
  std::size_t next = 0;
  for (const std::string& line : lines_of(json.out)) {
    const JsonValue one = parse_json(line, JsonLimits{}, "line");
    for (const JsonValue& token : one.elements("tokens")) EXPECT_EQ(token.integer(), ids[next++]);
    std::int64_t scored = 0;
    for (const JsonValue& mask : one.elements("score_mask")) scored += mask.integer();
    EXPECT_EQ(scored, 16);
    EXPECT_EQ(one.string("text").size(), 40u);
  }
  EXPECT_EQ(next, ids.size());
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
  const auto expect_usage = [&](const std::vector<std::string>& options, const std::string& message) {
    std::vector<std::string> words{"--task", "flip-flop"};
    words.insert(words.end(), options.begin(), options.end());
    const Finished refused = data(words);
    EXPECT_EQ(refused.code, 2) << message;
    EXPECT_NE(refused.err.find(message), std::string::npos) << refused.err;
    EXPECT_LT(refused.err.size(), 200u) << refused.err;
    EXPECT_EQ(refused.out, "");
  };
  expect_usage({"--count", "0"}, "0 not in range");
  expect_usage({"--start", "-1"}, "-1 not in range");
  expect_usage({"--split", "ood-dense", "--start", "2999", "--count", "2"},
               "ood-dense has 3000 sequences, asked for 2 from number 2999 on");
  expect_usage({"--split", "ood-dense", "--start", "3000"}, "ood-dense has sequences 0 to 2999, asked for 3000");
}

TEST_F(Data, AFolderThatIsNotThereIsNamedWithTheFileAskedFor) {
  for (const std::string& path : {folder_ / "missing/x", folder_ / "missing/x.npy"}) {
    const Finished result = data({"--task", "flip-flop", "--out", path});
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find(path + ": cannot create the file"), std::string::npos) << result.err;
  }
}

#ifndef TALLY_SANITIZED  // sanitizers need more data of their own
// Writes 80 MB of lines with at most 64 MiB of data.
TEST_F(Data, LinesAreNotCollected) {
  const std::string limited = "ulimit -d 65536; exec '" TALLY_RUNNER "' data --task flip-flop --count 16000 --out '" +
                              (folder_ / "a.jsonl") + "'";
  const Finished result = run_program({"/bin/sh", "-c", limited}, folder_);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(std::filesystem::file_size(folder_ / "a.jsonl"), 70'000'000u);
}
#endif

TEST_F(Data, ASignalLeavesNothingOfTheFile) {
  const std::string out = folder_ / "a.jsonl";
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const pid_t process = start_program(
        {TALLY_RUNNER, "data", "--task=flip-flop", "--count=1000000", "--length=64", "--out", out}, folder_);
    const auto begun = [&] {
      std::error_code none;
      return std::filesystem::exists(out + ".tmp") && std::filesystem::file_size(out + ".tmp", none) > 0;
    };
    EXPECT_TRUE(comes_true(begun));
    send_signal(process, signal);
    EXPECT_EQ(finish_program(process, folder_).code, code);
    EXPECT_FALSE(std::filesystem::exists(out) || std::filesystem::exists(out + ".tmp"));
  }
}

TEST_F(Data, AnArrayThatDoesNotFitInMemoryIsRefused) {
  const std::string out = folder_ / "a.npy";
  const Finished result = data({"--task", "flip-flop", "--count", "4294967296", "--length", "65536", "--out", out});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("this needs about 1 PiB (data 1 PiB)"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace data_test
}  // namespace tally::testing
