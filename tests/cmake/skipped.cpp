// Suites for skipped_test.cmake, which runs them one by one.
#include <gtest/gtest.h>

namespace {

class WithoutIt : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_SKIP() << "it is not there"; }
};
TEST_F(WithoutIt, First) { FAIL(); }
TEST_F(WithoutIt, Second) { FAIL(); }

TEST(InPart, IsNotThere) { GTEST_SKIP(); }
TEST(InPart, Passes) { SUCCEED(); }

TEST(WithAFailure, IsNotThere) { GTEST_SKIP(); }
TEST(WithAFailure, Fails) { FAIL(); }

class FailsFirst : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { FAIL(); }
};
TEST_F(FailsFirst, IsNotThere) { GTEST_SKIP(); }

}  // namespace
