// Streams, events and graphs: work runs in order of submission, by default at once. With Settings::delay_streams it
// runs late and in a random order, as far as CUDA's rules allow. Work of one stream runs in order, events order work
// between streams, and work is guaranteed to have run only after a wait for it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "core/math/random.hpp"

namespace tally::cuda_host {

struct Event {
  bool timed = true;
  std::uint64_t recorded = 0;  // number of times it was put into a stream
  std::uint64_t reached = 0;   // the last of these that has run
  std::chrono::steady_clock::time_point reached_at;
};

struct Graph {
  std::vector<std::function<void()>> work;
  std::vector<void*> taken, freed;  // memory allocated in the capture and not freed in it; memory freed in it
  std::vector<void*> held;          // subset of taken: allocated by the latest launch, not freed since
  std::size_t live_bytes = 0, peak_bytes = 0;  // during the capture
  bool has_memory = false;                     // the graph's memory, peak_bytes: from its first launch until trimmed
  bool invalid = false;                        // after a failed call during the capture
  int references = 1;
};

struct Stream {
  struct Item {
    std::function<void()> work;
    const Event* event = nullptr;  // the item runs once this event has reached the count `awaited`
    std::uint64_t awaited = 0;
  };
  std::deque<Item> items;
  Graph* capture = nullptr;
};

// All streams and their state, guarded by its mutex.
struct Streams {
  std::recursive_mutex mutex;
  std::vector<Stream*> all;
  std::vector<Graph*> graphs;
  // Memory of the device, with a separate part for graphs: freed memory stays in the part that allocated it.
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
