// tally bench with several encodings in turns, and the options refused in this case.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runner/bench_fixture.hpp"

namespace tally::testing {
namespace bench_turns_test {

// One line per encoding, compared with the first. Only the encoding differs between lines.
TEST_F(Bench, EncodingsInTurns) {
  for (const std::string work : {"step", "attention"}) {
    const JsonValue json = bench_json(
        {work, "--pe=none,cope+rope,alibi[window=5,first=2]", "--pe.cope.p-max=4", "--steps=1", "--rounds=2"});
    EXPECT_EQ(json.integer("rounds"), 2);
    const JsonValue::Array& lines = json.elements("encodings");
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
  for (const char* part : {"| encoding | ", "of none's time", "3 rounds in turns", "\n| hard     | ", " composed "}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
  const JsonValue sizes = bench_json({"step", "--dry-run", "--pe=none;0:cope,1-3:none"});
  EXPECT_EQ(sizes.elements("encodings").size(), 2u);
  EXPECT_FALSE(sizes.elements("encodings")[1].contains("ratio"));
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"step", "--pe=none,cope", "--set", "length=8,16"},
        {"step", "--pe=none,cpoe"},
        {"step", "--pe=none,"},
        {"step", "--pe=cope", "--rounds=2"},
        {"step", "--dry-run", "--pe=none,cope", "--rounds=2"},
        {"step", "--pe=none,alibi", "--pe.p-max=3"}}) {
    EXPECT_EQ(bench(wrong).code, 2) << wrong[0] << " " << wrong[1];
  }
}

}  // namespace bench_turns_test
}  // namespace tally::testing
