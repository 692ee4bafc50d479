// The processes that mpirun started to do one piece of work together; a program that was started by itself is the only
// one. MPI is loaded while the program runs and where mpirun started it alone, so that a program that was built without
// it, or starts without it, is the same. OpenMPI's ABI is understood (Debian's libopenmpi3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tally {

class Ranks {
 public:
  // Joins the others. Throws Error where mpirun started this process and MPI cannot be loaded.
  static void join();
  // Those that were joined; until then a process is alone.
  static const Ranks& world();
  // A process without others, whatever was joined: of work that is its own.
  static const Ranks& one();

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return size_; }
  bool alone() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }

  // All below are called by all of them in the same order; what is sent may have at most 2^31 - 1 bytes at once. Where
  // a process is alone they do nothing.

  // Returns when all have come.
  void wait_for_all() const;
  // Whether it is true for any.
  bool any(bool value) const;
  // Throws Error naming `what` and a rank whose value is another.
  void check_same(std::int64_t value, const std::string& what) const;
  // Of all.size() bytes each has the part [begins[rank], begins[rank + 1]); all get all.
  void share(std::span<std::byte> all, std::span<const std::size_t> begins) const;
  // The sum of what the ranks below `terms` have, element by element, added in the tree of tasks/tree_sum.hpp; all get
  // it. Each adds up its part of the elements, so that a rank sends and receives less than twice the bytes of `values`.
  void add_in_tree(std::span<float> values, std::int64_t terms) const;
  void add_in_tree(std::span<double> values, std::int64_t terms) const;

  // Ends all of them at once with this exit code.
  [[noreturn]] void end_all(int code) const;
  // To be called at the end of a program that did not fail.
  static void leave();

 private:
  Ranks() = default;
  static Ranks& instance();
  template <class T>
  void add_parts(std::span<T> values, std::int64_t terms) const;
  void exchange(std::span<const std::byte> out, std::int64_t to, std::span<std::byte> in, std::int64_t from) const;

  std::int64_t rank_ = 0, size_ = 1;
};

}  // namespace tally
