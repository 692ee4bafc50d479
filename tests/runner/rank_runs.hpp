// Runs that several processes of mpirun share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/runner/program.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {

inline constexpr const char* mpirun = "/usr/bin/mpirun";

// The reason why ranks cannot share a run here; "" if they can.
inline std::string no_ranks() {
#ifdef TALLY_SANITIZED
  return "OpenMPI is not built for sanitizers";
#else
  return std::filesystem::exists(mpirun) ? ""
                                         : std::string("no OpenMPI here (") + mpirun + "); tests/install.sh --with-mpi";
#endif
}

// A tally command in `count` processes on this machine, without contacting another one.
inline std::vector<std::string> ranks(int count, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"/usr/bin/env",
                                 "OMPI_ALLOW_RUN_AS_ROOT=1",
                                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                 mpirun,
                                 "--oversubscribe",
                                 "--bind-to",
                                 "none",
                                 "--mca",
                                 "plm",
                                 "isolated",
                                 "-np",
                                 std::to_string(count),
                                 TALLY_RUNNER};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

// Compares the run of `count` ranks with an existing run of one process.
inline void expect_bytes_of_one(int count, const std::string& alone, const std::vector<std::string>& words,
                                const TemporaryFolder& folder) {
  const Finished finished = run_program(ranks(count, words), folder);
  ASSERT_EQ(finished.code, 0) << finished.err;
  expect_same_run(words[1], alone);
  EXPECT_EQ(results_of(words[1]), results_of(alone));
  EXPECT_FALSE(finished.out.empty()) << "the first prints";
}

class RanksOfMpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_ranks(); !why.empty()) GTEST_SKIP() << why;
  }
  // Seven micro-batches by default; with four ranks the last rank has one.
  static std::vector<std::string> training(const std::string& run, const std::string& encoding,
                                           std::vector<std::string> options = {}) {
    for (const std::string option : {"--batch=7", "--micro-batch=1", "--model.dropout=0.1"}) {
      const std::string name = option.substr(0, option.find('='));
      if (std::ranges::none_of(options, [&](const std::string& own) { return own.starts_with(name + "="); })) {
        options.push_back(option);
      }
    }
    return tiny_training(run, encoding, options);
  }

  // Trains with `count` ranks and compares with an existing run of one process.
  void expect_bytes_of_one(int count, const std::string& alone, const std::vector<std::string>& words) {
    testing::expect_bytes_of_one(count, alone, words, folder_);
  }

  TemporaryFolder folder_;
};

}  // namespace tally::testing
