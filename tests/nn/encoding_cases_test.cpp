// The cases that tests of encodings share.
#include "tests/nn/encoding_cases.hpp"

#include <gtest/gtest.h>

#include <stdlib.h>

namespace tally::encoding_cases_test {

using testing::EncodingCase;

// If an encoding is named, only its cases are left, including its combinations with each of the others.
TEST(EncodingCases, AreThoseOfTheEncodingThatIsAskedFor) {
  const std::size_t before = testing::together_cases().size();
  const char* const usual = std::getenv("TALLY_TEST_ENCODING");
  const std::string restored = usual == nullptr ? "" : usual;
  setenv("TALLY_TEST_ENCODING", "cope", 1);
  using Maker = std::vector<EncodingCase> (*)();
  for (const Maker make : {Maker(testing::all_cases), Maker(testing::plain_cases), Maker(testing::windowed_cases),
                           Maker(testing::changed_cases), Maker(testing::rotated_query_cases),
                           Maker([] { return testing::together_cases(); })}) {
    const std::vector<EncodingCase> cases = make();
    EXPECT_FALSE(cases.empty());
    for (const EncodingCase& one : cases) EXPECT_TRUE(testing::is_asked(one.choice)) << one.label;
  }
  EXPECT_EQ(testing::plain_cases().size(), 1u);
  std::set<const EncodingEntry*> beside;
  for (const EncodingCase& one : testing::together_cases()) {
    for (const auto& part : one.choice.parts) beside.insert(part.entry);
  }
  EXPECT_EQ(beside.size(), encoding_registry().size());
  setenv("TALLY_TEST_COMPANIONS", " alibi rope ", 1);
  const std::set<std::string> companions{"alibi", "cope", "rope"};
  for (const EncodingCase& one : testing::together_cases()) {
    for (const auto& part : one.choice.parts) EXPECT_TRUE(companions.contains(part.entry->name)) << one.label;
  }
  unsetenv("TALLY_TEST_COMPANIONS");
  setenv("TALLY_TEST_ENCODING", "cpoe", 1);
  EXPECT_THROW(testing::plain_cases(), Error);
  unsetenv("TALLY_TEST_ENCODING");
  if (!restored.empty()) setenv("TALLY_TEST_ENCODING", restored.c_str(), 1);
  EXPECT_EQ(testing::together_cases().size(), before);
}

}  // namespace tally::encoding_cases_test
