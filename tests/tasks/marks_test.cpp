// Marked lines of a text, by the token in which each begins.
#include "tasks/inspect/inspect.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/core/io_files.hpp"

namespace tally::testing::marks_test {

// A text of pieces; piece 0 begins a document and stands for no bytes.
class Pieces final : public Task {
 public:
  explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  const std::vector<std::string>& vocabulary() const override { return pieces_; }
  const std::vector<Split>& splits() const override { return splits_; }
  Example example(std::string_view, std::int64_t) const override { return {}; }
  std::string text(const Example&) const override { return {}; }
  std::vector<std::int32_t> encode(std::string_view) const override { return {}; }
  std::vector<std::int32_t> beginning() const override { return {0}; }

 private:
  std::vector<std::string> pieces_;
  std::vector<Split> splits_;
};

// Marks of the pieces in their order. Only "<end>" begins a document.
std::vector<int> marks_of(std::vector<std::string> pieces, const std::vector<Mark>& marks = text_marks()) {
  std::vector<std::int32_t> tokens(pieces.size());
  std::iota(tokens.begin(), tokens.end(), pieces.front() == "<end>" ? 0 : 1);
  if (tokens.front() == 1) pieces.insert(pieces.begin(), "<end>");
  return find_marks(Pieces(pieces), tokens, marks);
}

constexpr int none = -1, section = 0, function = 1, paragraph = 2;
using Marks = std::vector<int>;

TEST(Marks, StandWhereALineBegins) {
  EXPECT_EQ(marks_of({"x", "\n", "# ", "A", "\n", "b"}), (Marks{none, none, section, none, none, none}));
  EXPECT_EQ(marks_of({"x", "\n", " = A", " = ", "\n"}), (Marks{none, none, section, none, none}));
  EXPECT_EQ(marks_of({"}\n", "\n", "func", " f"}), (Marks{none, paragraph, function, none}));
  EXPECT_EQ(marks_of({"x\n", "  def", " f", "\n"}), (Marks{none, function, none, none}));
  EXPECT_EQ(marks_of({"x\n", "defy", "\n", "a # b"}), (Marks{none, none, none, none}));
}

TEST(Marks, OfSeveralLinesInOneTokenTheFirstKindCounts) {
  EXPECT_EQ(marks_of({"x", "\n\n# ", "A"}), (Marks{none, section, none})) << "an empty line and a section";
  EXPECT_EQ(marks_of({"x", "\n\n", "y"}), (Marks{none, paragraph, none}));
}

TEST(Marks, WhatIsCutOffAtTheBeginningIsNoLine) {
  EXPECT_EQ(marks_of({"# A", "\n", "b"}), (Marks{none, none, none}));
  EXPECT_EQ(marks_of({"<end>", "# A", "\n", "b"}), (Marks{none, section, none, none}));
  EXPECT_EQ(marks_of({"\n", "\n", "b"}), (Marks{none, paragraph, none})) << "the first ends a line that is not here";
}

TEST(Marks, OfOnesOwn) {
  EXPECT_EQ(marks_of({"x\n", "a", "b\n", "c"}, {{"two", "^ab$"}}), (Marks{none, 0, none, none}));
  EXPECT_EQ(marks_of({"x\n", "a\n", "b"}, {}), (Marks{none, none, none}));
  EXPECT_ERROR(marks_of({"x\n"}, {{"m", "("}}), "'('");
}

}  // namespace tally::testing::marks_test
