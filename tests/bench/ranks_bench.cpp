// The cost of exchanging gradients between processes: mpirun -np 2 ranks_bench. Prints the seconds of a sum over all
// ranks by the bytes of each, and of the shortest possible exchange.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "core/distributed/gradient_reducer.hpp"
#include "core/distributed/process_group.hpp"
#include "core/error.hpp"

namespace {

template <class F>
double best_seconds(const tally::ProcessGroup& ranks, int tries, F&& f) {
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    ranks.barrier();
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main() {
  try {
    tally::ProcessGroup::join();
    const tally::ProcessGroup& ranks = tally::ProcessGroup::world();
    tally::check(!ranks.alone(), "bench", "to be started by mpirun -np 2");
    constexpr int words = 100;  // one after the other: without a question an answer may arrive early
    const double asked = best_seconds(ranks, 20,
                                      [&] {
                                        for (int i = 0; i < words; ++i) ranks.any(false);
                                      }) /
                         words;
    if (ranks.first())
      std::printf("%ld ranks: a word to all and from all in %.1f us\n", long(ranks.size()), 1e6 * asked);
    for (const std::int64_t mib : {1, 4, 16, 64}) {
      const std::int64_t elements = (mib << 20) / std::int64_t{sizeof(float)};
      constexpr std::int64_t bucket = std::int64_t{1} << 20;  // elements, as a training step sends them
      const tally::Tensor values = tally::Tensor::full({elements}, 1);
      const std::unique_ptr<tally::GradientReducer> exchange = tally::make_gradient_reducer(ranks, tally::Device{});
      const double seconds = best_seconds(ranks, 10, [&] {
        for (std::int64_t at = 0; at < elements; at += bucket) {
          exchange->begin(values.detached_slice(0, at, std::min(at + bucket, elements)), ranks.size());
        }
        exchange->finish();
      });
      const double sent = 2.0 * static_cast<double>(ranks.size() - 1) / static_cast<double>(ranks.size());
      if (ranks.first()) {
        std::printf("%4ld MiB summed in %.2f ms: each sends and receives %.2f GB/s\n", long(mib), 1e3 * seconds,
                    sent * static_cast<double>(mib << 20) * 1e-9 / seconds);
      }
    }
    tally::ProcessGroup::leave();
    return 0;
  } catch (const tally::Error& error) {
    std::fprintf(stderr, "ranks_bench: %s\n", error.what());
    return 1;
  }
}
