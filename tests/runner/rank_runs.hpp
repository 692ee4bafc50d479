// Runs that several processes of mpirun share.
#pragma once

#include "tests/runner/text_runs.hpp"

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
inline std::vector<std::string> ranks(int count, const std::string& line) {
  std::vector<std::string> words = words_of(formatted(
      "/usr/bin/env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {} --oversubscribe --bind-to none --mca "
      "plm isolated -np {} {}",
      mpirun, count, TALLY_RUNNER));
  for (const std::string& word : words_of(line)) words.push_back(word);
  return words;
}

// Compares a run of `count` ranks with an existing run of one process.
inline void expect_bytes_of_one(int count, const std::string& alone, const std::string& run, const std::string& line,
                                const TemporaryFolder& folder) {
  const Finished finished = run_program(ranks(count, line), folder);
  ASSERT_EQ(finished.code, 0) << finished.err;
  expect_same_run(folder / run, folder / alone);
  EXPECT_EQ(results_of(folder / run), results_of(folder / alone));
  EXPECT_FALSE(finished.out.empty()) << "the first prints";
}

class RanksOfMpi : public Program {
 protected:
  void SetUp() override {
    if (const std::string why = no_ranks(); !why.empty()) GTEST_SKIP() << why;
  }
  // Seven micro-batches by default; with four ranks the last rank has one.
  static std::string training(const std::string& run, const std::string& encoding, std::string options = "") {
    for (const std::string option : {"--batch=7", "--micro-batch=1", "--model.dropout=0.1"}) {
      if (!holds(options, option.substr(0, option.find('=') + 1))) options += " " + option;
    }
    return tiny(run, encoding, options);
  }
  Finished run_ranks(int count, const std::string& line) const { return run_program(ranks(count, line), folder_); }
  // Trains with one process, and compares each number of ranks with it.
  void expect_same_bytes(const std::vector<int>& counts, const std::string& encoding, const std::string& options,
                         const std::string& more = "") {
    const std::string alone = formatted("alone-{}", ++trained_);
    done(training(alone, encoding, options));
    for (const int count : counts) {
      const std::string run = formatted("run-{}-{}", trained_, count);
      expect_bytes_of_one(count, alone, run, training(run, encoding, options) + more, folder_);
      if (HasFatalFailure()) return;
    }
  }
  // Refused once, although every rank finds it.
  void refused_once(int count, const std::string& line, const std::string& message) {
    const Finished finished = run_ranks(count, line);
    EXPECT_EQ(finished.code, 2) << line;
    EXPECT_TRUE(holds(finished.err, message)) << finished.err;
    EXPECT_EQ(finished.err.find("tally: "), finished.err.rfind("tally: ")) << finished.err;
  }

  int trained_ = 0;
};

}  // namespace tally::testing
