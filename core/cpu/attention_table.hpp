// Tables of the rows of a tile. Every pair reads one place of a table (core/attention/pair.hpp, needs.table).
#pragma once

#include <cstdint>

#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

// The two entries around a place in a row's table. The table is contiguous and repeats its last value.
template <class T>
struct Neighbours {
  T low, next;
};
// Two numbers of an entry that are read or written at once. In a table with knots: the value at a knot and the slope
// after it. In gradients: the sum of gradients that arrive at an entry as the lower of two, and the sum of their shares
// that belong to the next entry.
template <class T>
struct Entry {
  T low, rise;
};

// Every lane reads at a different address. Reading one element after the other, 64 bits at a time, takes half as long
// as gather instructions. The compiler must not replace it by gathers.
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
