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
#include <optional>
#include <vector>

#include "core/math/random.hpp"
#include "cuda/emulator/runtime_api.hpp"

namespace tally::cuda_host {

struct Event {
  bool timed = true;
  std::uint64_t recorded = 0;  // number of times it was put into a stream
  std::uint64_t reached = 0;   // the last of these that has run
  std::chrono::steady_clock::time_point reached_at;
};

struct Work {
  std::function<void()> work;
  const Event* event = nullptr;  // the work runs once this event has reached the count `awaited`
  std::uint64_t awaited = 0;
  std::optional<cudaGraphNodeType> node = {};  // its type in a graph; empty: no node
};

struct Graph {
  std::vector<Work> work;
  bool invalid = false;  // after a failed call during the capture
  int references = 1;
};

struct Stream {
  std::deque<Work> items;
  Graph* capture = nullptr;
};

// Makes the capture of a stream invalid, after a call that it does not allow.
cudaError_t lose_capture(Stream& stream);

// All streams and their state, guarded by its mutex.
struct Streams {
  std::recursive_mutex mutex;
  std::vector<Stream*> all;
  std::size_t pool_used = 0, pool_reserved = 0;  // bytes of memory
  Rng rng{{0, stream_of("cuda-host streams"), 0}};

  bool known(const Stream* stream) const;
  void put(Stream& stream, Work work);
  // Runs the next item of some stream; false when none can run.
  bool run_one();
  void run_all();
};
Streams& streams();

}  // namespace tally::cuda_host
