// What the exchange of gradients costs between processes: mpirun -np 2 ranks_bench. Seconds of a sum over all ranks by
// the bytes that each has, and of the least that they can say to each other.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "core/error.hpp"
#include "core/ranks.hpp"

namespace {

template <class F>
double best_seconds(const tally::Ranks& ranks, int tries, F&& f) {
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    ranks.wait_for_all();
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main() {
  try {
    tally::Ranks::join();
    const tally::Ranks& ranks = tally::Ranks::world();
    tally::check(!ranks.alone(), "bench", "to be started by mpirun -np 2");
    constexpr int words = 100;  // one after the other: an answer alone may have come before it is asked for
    const double asked = best_seconds(ranks, 20,
                                      [&] {
                                        for (int i = 0; i < words; ++i) ranks.any(false);
                                      }) /
                         words;
    if (ranks.first())
      std::printf("%ld ranks: a word to all and from all in %.1f us\n", long(ranks.size()), 1e6 * asked);
    for (const std::size_t mib : {1U, 4U, 16U, 64U}) {
      std::vector<float> values((mib << 20) / sizeof(float), 1.0F);
      constexpr std::size_t bucket = std::size_t{1} << 20;  // elements, as a training step sends them
      const double seconds = best_seconds(ranks, 10, [&] {
        for (std::size_t at = 0; at < values.size(); at += bucket) {
          ranks.add_in_tree(std::span(values).subspan(at, std::min(bucket, values.size() - at)), ranks.size());
        }
      });
      const double sent = 2.0 * static_cast<double>(ranks.size() - 1) / static_cast<double>(ranks.size());
      if (ranks.first()) {
        std::printf("%4zu MiB summed in %.2f ms: each sends and receives %.2f GB/s\n", mib, 1e3 * seconds,
                    sent * static_cast<double>(mib << 20) * 1e-9 / seconds);
      }
    }
    tally::Ranks::leave();
    return 0;
  } catch (const tally::Error& error) {
    std::fprintf(stderr, "ranks_bench: %s\n", error.what());
    return 1;
  }
}
