// Streams, events and graphs: work in the order in which it was put in. At once by default; with
// Settings::delay_streams late and in a random order, as far as CUDA's rules allow: in a stream one after the other,
// between streams as events say, and nothing is sure to have run before somebody has waited for it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "core/random.hpp"

namespace tally::cuda_host {

struct Event {
  bool timed = true;
  std::uint64_t recorded = 0;  // times it was put into a stream
  std::uint64_t reached = 0;   // of these, the last that was run
  std::chrono::steady_clock::time_point reached_at;
};

struct Graph {
  std::vector<std::function<void()>> work;
  std::vector<void*> taken, freed;             // memory of the capture that was not freed again in it; that was
  std::vector<void*> held;                     // of what is taken: by the latest launch, and not freed since
  std::size_t live_bytes = 0, peak_bytes = 0;  // during the capture
  bool has_memory = false;                     // of its own, peak_bytes: from its first launch until that is trimmed
  bool invalid = false;                        // by a call during the capture that failed
  int references = 1;
};

struct Stream {
  struct Item {
    std::function<void()> work;
    const Event* event = nullptr;  // runs once this was reached for the time `awaited`
    std::uint64_t awaited = 0;
  };
  std::deque<Item> items;
  Graph* capture = nullptr;
};

// All that there is, to be used under its mutex.
struct Streams {
  std::recursive_mutex mutex;
  std::vector<Stream*> all;
  std::vector<Graph*> graphs;
  // Memory of the device, of which graphs have a part of their own: what is freed stays with whoever had it.
  std::size_t pool_used = 0, pool_reserved = 0, graphs_reserved = 0;
  Rng rng{{0, stream_of("cuda-host streams"), 0}};

  bool known(const Stream* stream) const;
  void put(Stream& stream, Stream::Item item);
  // Runs the next item of some stream; false when none can run.
  bool run_one();
  void run_all();
};
Streams& streams();

}  // namespace tally::cuda_host
