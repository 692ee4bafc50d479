// The process group: processes that mpirun started for one piece of work. A program started without mpirun is the only
// member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/distributed/transport.hpp"

namespace tally {

class ProcessGroup {
 public:
  // Joins the process group. Throws Error if mpirun started this process and MPI cannot be loaded.
  static void join();
  // The group that was joined; before that, this process only.
  static const ProcessGroup& world();
  // This process only, whatever group was joined. For work that is not shared.
  static const ProcessGroup& one();
  // Same rank and size as world(), but with no communication. For dry runs that only count memory
  // (core/device/meta.cpp).
  static const ProcessGroup& counted();

  // Rank `rank` of `size`, communicating through `transport`, which must outlive it.
  ProcessGroup(std::int64_t rank, std::int64_t size, Transport& transport)
      : rank_(rank), size_(size), by_(&transport) {}

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return size_; }
  bool alone() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }

  // Collective: all members call these in the same order. In a group of one they do nothing.

  // A barrier: returns when all members have called it.
  void barrier() const;
  // Whether the value is true on any member.
  bool any(bool value) const;
  // Throws Error naming `what` and a rank whose value differs.
  void check_same(std::int64_t value, const std::string& what) const;
  // All-gather: each member has the part [begins[rank], begins[rank + 1]) of all.size() bytes; afterwards each has all.
  void all_gather(std::span<std::byte> all, std::span<const std::size_t> begins) const;

  // Ends all members at once with this exit code.
  [[noreturn]] void abort_all(int code) const;
  // To be called at the end of a program that succeeded.
  static void leave();

 private:
  friend class Messages;
  ProcessGroup() = default;
  static ProcessGroup& instance();
  // The value of each member, gathered on all.
  std::vector<std::int64_t> values_of_all(std::int64_t value) const;

  std::int64_t rank_ = 0, size_ = 1;
  Transport* by_ = nullptr;  // null in a group of one
};

// Messages of this process in flight. Their memory must stay valid until they have arrived.
class Messages {
 public:
  explicit Messages(const ProcessGroup& ranks) : by_(ranks.by_) {}
  Messages(Messages&&) = default;
  Messages& operator=(Messages&&) = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() = default;

  // Both sides give the same number of bytes. Tags start at 1; tag 0 belongs to the functions of ProcessGroup.
  void send(std::span<const std::byte> bytes, std::int64_t to, int tag);
  void receive(std::span<std::byte> bytes, std::int64_t from, int tag);
  // Whether all have arrived, without waiting.
  bool arrived() { return requests_.empty() || by_->arrived(requests_); }
  void wait() {
    if (!requests_.empty()) by_->wait(requests_);
    requests_.clear();
  }

 private:
  Transport* by_;
  std::vector<Transport::Request> requests_;
};

}  // namespace tally
