// Claims with a lease. One of many workers gets a claim and keeps it while it lives. A stale claim is taken over once,
// and clocks are never compared.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "core/io/json.hpp"
#include "core/io/lease.hpp"
#include "tests/core/io_files.hpp"

namespace tally::io_lease_test {

namespace fs = std::filesystem;

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class Leases : public ::testing::Test {
 protected:
  std::string file(int number) const { return path_ + ".claim-" + std::to_string(number); }
  // The file of a holder elsewhere, as its machine would write it.
  void write_claim_of_elsewhere(int number, int renewals, const char* time = "1970-01-01T00:00:00Z",
                                double seconds = 0.2) const {
    std::ofstream(file(number)) << write_json(JsonValue::object({{"format", 1},
                                                                 {"state", "working"},
                                                                 {"host", "elsewhere"},
                                                                 {"process", 1},
                                                                 {"renewals", renewals},
                                                                 {"time", time},
                                                                 {"seconds", seconds},
                                                                 {"started", 1},
                                                                 {"boot", "another"},
                                                                 {"space", "another"}}));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("run");
};

TEST_F(Leases, TheFirstIsMadeAndEnded) {
  EXPECT_EQ(newest_claim(path_).number, 0);
  std::optional<Lease> lease = Lease::take(path_, newest_claim(path_), 60);
  ASSERT_TRUE(lease);
  const Claim claim = newest_claim(path_);
  EXPECT_EQ(claim.number, 1);
  EXPECT_TRUE(claim.open());
  EXPECT_EQ(claim.holder.process, getpid());
  EXPECT_FALSE(claim.holder.gone());
  EXPECT_EQ(claim.seconds, 60);
  EXPECT_FALSE(LeaseWatch().stale(claim));
  EXPECT_TRUE(lease->renew());
  lease->end("finished");
  EXPECT_FALSE(newest_claim(path_).open());
  EXPECT_EQ(newest_claim(path_).state, "finished");
  const fs::path folder = fs::path(path_).parent_path();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1) << "nothing beside it";
}

// Processes that have all read the same newest claim.
TEST_F(Leases, OfManyProcessesOneTakesIt) {
  constexpr int rounds = 20, processes = 4;
  for (int round = 0; round < rounds; ++round) {
    const Claim seen = newest_claim(path_);
    ASSERT_EQ(seen.number, round);
    std::vector<pid_t> children;
    for (int i = 0; i < processes; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(Lease::take(path_, seen, 60) ? 1 : 0);
      children.push_back(child);
    }
    int takers = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      takers += WEXITSTATUS(status);
    }
    EXPECT_EQ(takers, 1) << round;
  }
}

TEST_F(Leases, OneWhoseProcessIsGoneIsStaleAtOnce) {
  const pid_t child = fork();
  if (child == 0) _exit(Lease::take(path_, {}, 3600) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  const Claim claim = newest_claim(path_);
  EXPECT_TRUE(claim.open());
  EXPECT_TRUE(claim.holder.gone());
  EXPECT_TRUE(LeaseWatch().stale(claim));
}

// A process of the same number on another machine, or one that was started later here, does not count.
TEST_F(Leases, OnlyAProcessOfThisMachineIsLookedFor) {
  LeaseHolder holder = LeaseHolder::here();
  EXPECT_FALSE(holder.gone());
  ++holder.started;  // its number was given to another process since
  EXPECT_TRUE(holder.gone());
  holder.boot = "another";
  EXPECT_FALSE(holder.gone());
  holder = LeaseHolder::here();
  holder.process = 4'000'000;  // above any process id
  EXPECT_TRUE(holder.gone());
  holder.space = "another";
  EXPECT_FALSE(holder.gone());
}

TEST_F(Leases, WhatDoesNotChangeIsStaleByTheWatchersClock) {
  for (const char* time : {"1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"}) {  // its own clock does not matter
    LeaseWatch watch;
    write_claim_of_elsewhere(1, 5, time);
    EXPECT_FALSE(watch.stale(newest_claim(path_)));
    pause(0.15);
    write_claim_of_elsewhere(1, 6, time);
    EXPECT_FALSE(watch.stale(newest_claim(path_)));
    pause(0.15);
    EXPECT_FALSE(watch.stale(newest_claim(path_))) << "it was renewed on the way";
    pause(0.15);
    EXPECT_TRUE(watch.stale(newest_claim(path_)));
  }
  std::optional<Lease> lease = Lease::take(path_, newest_claim(path_), 60);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->number(), 2);
  EXPECT_TRUE(overtaken(path_, 1));
  EXPECT_FALSE(overtaken(path_, 2));
}

TEST_F(Leases, RenewingIsSeen) {
  std::optional<Lease> lease = Lease::take(path_, {}, 0.2);
  ASSERT_TRUE(lease);
  LeaseWatch watch;
  for (int i = 0; i < 8; ++i) {
    pause(0.06);
    ASSERT_TRUE(lease->renew());
    EXPECT_FALSE(watch.stale(newest_claim(path_)));
  }
  EXPECT_GE(newest_claim(path_).renewals, 4);
}

TEST_F(Leases, AHolderThatSleptHasLostIt) {
  std::optional<Lease> lease = Lease::take(path_, {}, 0.1);
  ASSERT_TRUE(lease);
  pause(0.09);
  EXPECT_FALSE(lease->renew()) << "before anyone could take it over";
}

TEST_F(Leases, AHolderSeesThatAnotherHasTakenItOver) {
  std::optional<Lease> lease = Lease::take(path_, {}, 0.4);
  ASSERT_TRUE(lease);
  write_claim_of_elsewhere(2, 0);
  pause(0.15);
  EXPECT_FALSE(lease->renew());
  lease->end("finished");  // of its own claim, which counts no more
  EXPECT_TRUE(newest_claim(path_).open());
  EXPECT_EQ(newest_claim(path_).holder.host, "elsewhere");
}

// As while it is being written, or after a full disk: its owner keeps it until it goes stale.
TEST_F(Leases, WhatCannotBeUnderstoodIsTakenForHeld) {
  for (const char* text : {"", "{\"format\":1", "not JSON"}) {
    std::ofstream(file(1)) << text;
    const Claim claim = newest_claim(path_);
    EXPECT_EQ(claim.number, 1);
    EXPECT_TRUE(claim.open());
    EXPECT_FALSE(LeaseWatch().stale(claim));
  }
}

TEST_F(Leases, AFolderThatIsNotThereIsNamed) {
  const std::string why = error_of([&] { Lease::take(folder_.file("nowhere/run"), {}, 60); });
  EXPECT_NE(why.find("nowhere/run.claim-1"), std::string::npos) << why;
}

}  // namespace tally::io_lease_test
