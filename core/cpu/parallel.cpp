#include "core/cpu/parallel.hpp"

#include <omp.h>

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
  check(n >= 1, "threads", "the number of threads must be at least 1, got ", n);
  setting().store(n, std::memory_order_relaxed);
}

}  // namespace tally
