// Language models that ranks train equal the run of one process.
#include <gtest/gtest.h>

#include "tests/runner/rank_runs.hpp"

namespace tally::testing::ranks_text_test {

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
    const std::string options = "--micro-batch=1 --model.dropout=0.1 --threads=1 --task.documents=" + documents;
    done(training(documents, options));
    for (const int count : {2, 4}) {
      const std::string run = formatted("{}-{}", count, documents);
      expect_bytes_of_one(count, documents, run, training(run, options), folder_);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace tally::testing::ranks_text_test
