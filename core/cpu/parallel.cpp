#include "core/cpu/parallel.hpp"

#include <omp.h>

#ifdef __linux__
#include <sched.h>
#endif

#include <atomic>

#include "core/error.hpp"

namespace tally {

namespace {
// OpenMP's own setting belongs to one thread; a program that trains on a second thread would lose it there.
std::atomic<int>& setting() {
  static std::atomic<int> threads{omp_get_max_threads()};
  return threads;
}
}  // namespace

int thread_count() { return setting().load(std::memory_order_relaxed); }

void set_thread_count(int n) {
  check(n >= 1, "threads", "the number of threads must be at least 1, got {}", n);
  setting().store(n, std::memory_order_relaxed);
}

namespace detail {

#ifdef __linux__
int current_core() { return sched_getcpu(); }

// Linux may wake a thread on the core of the thread that wakes it, in virtual machines even while other cores are idle.
// Threads that wait for each other by spinning then take turns of 4 ms, which the load balancer does not notice: a
// matmul of 0.6 ms was seen to take 8 ms again and again. The thread may run anywhere afterwards, so nothing is pinned.
void leave_core(int core) {
  if (omp_get_thread_num() == 0 || core < 0 || sched_getcpu() != core) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < omp_get_num_threads()) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(core), &others);
  if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
int current_core() { return -1; }
void leave_core(int) {}
#endif

}  // namespace detail

}  // namespace tally
