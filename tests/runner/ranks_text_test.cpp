// Language models that ranks train equal the run of one process.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runner/rank_runs.hpp"
#include "tests/runner/text_runs.hpp"

namespace tally::testing {
namespace ranks_text_test {

class RanksOfMpiOnTexts : public TextRuns {
 protected:
  void SetUp() override {
    if (const std::string why = no_ranks(); !why.empty()) GTEST_SKIP() << why;
    TextRuns::SetUp();
  }
};

// With separate texts, the parts of a batch differ in length, and their number differs between steps.
TEST_F(RanksOfMpiOnTexts, TrainTheBytesOfOneProcess) {
  for (const std::string documents : {"joined", "separate"}) {
    const std::vector<std::string> options{"--task.documents=" + documents, "--micro-batch=1", "--model.dropout=0.1",
                                           "--threads=1"};
    const std::string alone = "alone-" + documents;
    ASSERT_EQ(run_tally(training(alone, options), folder_).code, 0);
    for (const int count : {2, 4}) {
      expect_bytes_of_one(count, folder_ / alone, training(std::to_string(count) + "-" + documents, options), folder_);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace ranks_text_test
}  // namespace tally::testing
