// Streams, events and graphs: work in the order in which it was put in. At once by default; with
// Settings::delay_streams late and in a random order, as far as CUDA's rules allow: in a stream one after the other,
// between streams as events say, and nothing is sure to have run before somebody has waited for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace tally::cuda_host {

struct Event {
  std::uint64_t recorded = 0;  // times it was put into a stream
  std::uint64_t reached = 0;   // of these, the last that was run
};

struct Graph {
  std::vector<std::function<void()>> work;
  std::vector<void*> taken, freed;  // memory of the capture that was not freed again in it; that was
  std::vector<void*> held;          // of what is taken: by the latest launch, and not freed since
  bool invalid = false;             // by a call during the capture that failed
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

}  // namespace tally::cuda_host
