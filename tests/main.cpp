// main() of all test programs.
#include <gtest/gtest.h>

// The exit status is 77, which means skipped to ctest (cmake/discover_suites.cmake), if every selected test was
// skipped: GoogleTest would return the status of passed tests.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  const bool skipped = tests.test_to_run_count() > 0 && tests.skipped_test_count() == tests.test_to_run_count();
  constexpr int is_skipped = 77;
  return status == 0 && skipped ? is_skipped : status;
}
