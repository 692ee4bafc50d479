// Tables of the rows of a tile, of which every pair reads one place (core/attention/pair.hpp, needs.table).
#pragma once

#include <cstdint>

#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

// A place between two entries of a row's table, whose values lie next to each other, the last one twice.
template <class T>
struct Neighbours {
  T low, next;
};
// Two numbers of an entry that are read or written at once. Of a table with knots the value there and the slope behind
// it. Of gradients the sums of what reaches an entry as the lower of two, and of the parts of it that go to the next.
template <class T>
struct Entry {
  T low, rise;
};

// Every lane reads at an address of its own. One element after the other, 64 bits at a time, that takes half as long as
// the gather instructions do; the compiler must not make those of it.
template <class T, class Count>
TALLY_INLINE void look_up(Neighbours<T>* found, const T* values, const Count* at, std::int64_t lanes) {
  for (std::int64_t i = 0; i < lanes; ++i) __builtin_memcpy(found + i, values + at[i], sizeof(Neighbours<T>));
}
template <class T, class Count>
TALLY_INLINE void add_at(Entry<T>* table, const Count* at, const Entry<T>* added, std::int64_t lanes) {
  for (std::int64_t i = 0; i < lanes; ++i) {
    Entry<T>& entry = table[at[i]];
    entry = {entry.low + added[i].low, entry.rise + added[i].rise};
  }
}

}  // namespace tally::cpu
