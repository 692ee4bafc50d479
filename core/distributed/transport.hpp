// How ranks send bytes to each other (core/distributed/process_group.hpp): by MPI (core/distributed/mpi.cpp), in tests
// also between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tally {

class Transport {
 public:
  // A message in flight; null once it has arrived.
  using Request = void*;

  virtual ~Transport() = default;
  // Begin a message of at most 2^31 - 1 bytes, whose memory must stay valid until it has arrived. Messages with one tag
  // from one rank to another arrive in the order in which either side began them.
  virtual Request send(std::span<const std::byte> bytes, std::int64_t to, int tag) = 0;
  virtual Request receive(std::span<std::byte> bytes, std::int64_t from, int tag) = 0;
  // Whether all have arrived.
  virtual bool arrived(std::span<Request> requests) = 0;
  // Returns when all have.
  virtual void wait(std::span<Request> requests) = 0;
  // Ends all ranks at once with this exit code.
  [[noreturn]] virtual void abort_all(int code) = 0;
};

}  // namespace tally
