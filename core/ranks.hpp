// The processes that mpirun started to do one piece of work together; a program that was started by itself is the only
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/transport.hpp"

namespace tally {

class Ranks {
 public:
  // Joins the others. Throws Error where mpirun started this process and MPI cannot be loaded.
  static void join();
  // Those that were joined; until then a process is alone.
  static const Ranks& world();
  // A process without others, whatever was joined: of work that is its own.
  static const Ranks& one();
  // This one of as many as were joined, to whom nothing is sent and who never say anything: of work that is only
  // counted (core/meta.cpp).
  static const Ranks& counted();

  // Number `rank` of `size` that talk by `transport`, which lives longer.
  Ranks(std::int64_t rank, std::int64_t size, Transport& transport) : rank_(rank), size_(size), by_(&transport) {}

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return size_; }
  bool alone() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }

  // All below are called by all of them in the same order. Where a process is alone they do nothing.

  // Returns when all have come.
  void wait_for_all() const;
  // Whether it is true for any.
  bool any(bool value) const;
  // Throws Error naming `what` and a rank whose value is another.
  void check_same(std::int64_t value, const std::string& what) const;
  // Of all.size() bytes each has the part [begins[rank], begins[rank + 1]); all get all.
  void share(std::span<std::byte> all, std::span<const std::size_t> begins) const;

  // Ends all of them at once with this exit code.
  [[noreturn]] void end_all(int code) const;
  // To be called at the end of a program that did not fail.
  static void leave();

 private:
  friend class Messages;
  Ranks() = default;
  static Ranks& instance();
  // One value of each rank, known to all.
  std::vector<std::int64_t> values_of_all(std::int64_t value) const;

  std::int64_t rank_ = 0, size_ = 1;
  Transport* by_ = nullptr;  // null where alone
};

// Messages of a rank that are on their way together. Their memory stays as long as they do.
class Messages {
 public:
  explicit Messages(const Ranks& ranks) : by_(ranks.by_) {}
  Messages(Messages&&) = default;
  Messages& operator=(Messages&&) = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() = default;

  // Both sides name the same number of bytes. Tags from 1 on; 0 is that of the functions of Ranks.
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
