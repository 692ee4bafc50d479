// Preparations that were stopped or killed go on, to the same bytes.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "tests/text/prepare_fixture.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

TEST_F(Prepare, StoppedAnywhereItEndsTheSame) {
  prepare("whole");
  std::atomic<bool> stop{false};
  observer_.stop = &stop;
  int calls = 0, last = 0;
  observer_.progress = [&](std::string_view, std::uint64_t, std::uint64_t) { stop = ++calls >= last; };
  for (last = 1; last < 200; ++last) {
    calls = 0;
    stop = false;
    if (!prepare("out").is_null()) break;
    EXPECT_FALSE(fs::exists(folder_.file("out")));
  }
  EXPECT_GT(last, 40);
  EXPECT_LT(last, 200);
  EXPECT_EQ(all_of("out"), all_of("whole"));
}

// Three batches of the training split; what follows the last save is written again.
TEST_F(Prepare, GoesOnWithinASplit) {
  std::string lines;
  for (int n = 0; n < 10'000; ++n) lines += concat(R"({"text": "number )", n * n, R"( of ten thousand"})", "\n");
  const std::string path = folder_.file("many.jsonl", lines);
  settings_.sources = {{path, "train"}};
  std::atomic<bool> stop{false};
  std::vector<std::uint64_t> done;
  bool stopping = false;
  observer_.stop = &stop;
  observer_.progress = [&](std::string_view stage, std::uint64_t bytes, std::uint64_t) {
    if (stage != "train") return;
    done.push_back(bytes);
    stop = stopping;
  };
  prepare("whole");
  ASSERT_EQ(done.size(), 3u);
  const std::vector<std::uint64_t> whole = std::exchange(done, {});
  const auto begin = [&](const std::string& name) {
    stopping = true;
    EXPECT_TRUE(prepare(name).is_null());
    EXPECT_EQ(std::exchange(done, {}), std::vector<std::uint64_t>{whole[0]});
    stop = stopping = false;
  };
  const auto end = [&](const std::string& name, const std::vector<std::uint64_t>& expected) {
    prepare(name);
    EXPECT_EQ(std::exchange(done, {}), expected);
    EXPECT_EQ(all_of(name), all_of("whole"));
  };
  begin("stopped");
  end("stopped", {whole[1], whole[2]});
  begin("killed");  // behind a save
  std::ofstream(folder_.file("killed.partial/train.bin.tmp"), std::ios::app) << "more";
  std::ofstream(folder_.file("killed.partial/documents-train.tsv.tmp"), std::ios::app) << "more";
  end("killed", {whole[1], whole[2]});
  begin("damaged");
  fs::resize_file(folder_.file("damaged.partial/train.bin.tmp"), 1000);
  end("damaged", whole);
  begin("lost");
  fs::remove(folder_.file("lost.partial/documents-train.tsv.tmp"));
  end("lost", whole);
}

// What an interrupted preparation has left is taken over, or made anew in the same folder, not beside it.
TEST_F(Prepare, AnotherPlanBeginsAnewInTheSameFolder) {
  std::atomic<bool> stop{false};
  PrepareObserver stopping;
  stopping.progress = [&](std::string_view stage, std::uint64_t, std::uint64_t) { stop = stage == "train"; };
  stopping.stop = &stop;
  EXPECT_TRUE(prepare_text(folder_.file("out"), settings_, stopping).is_null());
  EXPECT_TRUE(fs::exists(folder_.file("out.partial/tokenizer.json")));
  settings_.vocabulary = 280;
  EXPECT_EQ(prepare().at("tokenizer").integer("vocabulary"), 280);
  prepare("alone");
  EXPECT_EQ(all_of("out"), all_of("alone"));
}

}  // namespace
}  // namespace tally
