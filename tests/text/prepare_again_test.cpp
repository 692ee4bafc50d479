// Preparations that were stopped or killed go on, to the same bytes.
#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/text/prepare_fixture.hpp"

namespace tally {
namespace prepare_again_test {

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

// A killed preparation leaves files of the split at work, which the next one writes again.
TEST_F(Prepare, GoesOnAfterAKill) {
  prepare("whole");
  std::atomic<bool> stop{false};
  observer_.stop = &stop;
  std::string last;
  observer_.progress = [&](std::string_view stage, std::uint64_t, std::uint64_t) {
    last = stage;
    stop = stage == "train";
  };
  EXPECT_TRUE(prepare("out").is_null());
  EXPECT_TRUE(fs::exists(folder_.file("out.partial/train.json"))) << "a finished split is kept";
  folder_.file("out.partial/validation.bin.tmp", "rest of another process");
  folder_.file("out.partial/documents-validation.tsv.tmp", "rest");
  observer_.progress = [&](std::string_view stage, std::uint64_t, std::uint64_t) { EXPECT_NE(stage, "train"); };
  stop = false;
  prepare("out");
  EXPECT_EQ(all_of("out"), all_of("whole"));
}

// What an interrupted preparation has left is taken over, or made anew in the same folder, not beside it.
TEST_F(Prepare, AnotherPlanBeginsAnewInTheSameFolder) {
  std::atomic<bool> stop{false};
  PrepareObserver stopping;
  stopping.progress = [&](std::string_view stage, std::uint64_t, std::uint64_t) { stop = stage == "train"; };
  stopping.stop = &stop;
  EXPECT_TRUE(prepare_text(folder_.file("out"), settings_, stopping).is_null());
  EXPECT_TRUE(fs::exists(folder_.file("out.partial/tokenizer.json")));
  folder_.file("out.partial/keep.txt", "of the user");
  fs::create_directory(folder_.file("out.partial/more"));
  folder_.file("out.partial/more/train.json", "{}");
  settings_.vocabulary = 280;
  std::vector<std::string> notes;
  observer_.note = [&](std::string_view line) { notes.emplace_back(line); };
  EXPECT_EQ(prepare().at("tokenizer").integer("vocabulary"), 280);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], folder_.file("out.partial") + ": drops the interrupted preparation of other texts or settings");
  prepare("alone");
  EXPECT_EQ(all_of("out"), all_of("alone"));
  EXPECT_EQ(bytes_of_file(folder_.file("out/keep.txt")), "of the user");
  EXPECT_EQ(bytes_of_file(folder_.file("out/more/train.json")), "{}");
}

// A plan.json of another program.
TEST_F(Prepare, FoldersOfOtherProgramsAreKept) {
  const std::string partial = folder_.file("out.partial");
  fs::create_directory(partial);
  folder_.file("out.partial/keep.txt", "of the user");
  folder_.file("out.partial/train.bin", "of the user");
  for (const std::string plan : {"{}", "[]", "", "{\"version\": 1, \"texts\": \"\", \"recipe\": {}}",
                                 "{\"version\": 1, \"texts\": \"\", \"given_tokenizer\": \"\", \"recipe\": 1}"}) {
    folder_.file("out.partial/plan.json", plan);
    EXPECT_ERROR(prepare(), "out.partial: is in the way; it is no folder of an interrupted preparation");
    EXPECT_EQ(bytes_of_file(folder_.file("out.partial/plan.json")), plan);
    EXPECT_EQ(bytes_of_file(folder_.file("out.partial/keep.txt")), "of the user");
    EXPECT_EQ(bytes_of_file(folder_.file("out.partial/train.bin")), "of the user");
  }
}

}  // namespace prepare_again_test
}  // namespace tally
