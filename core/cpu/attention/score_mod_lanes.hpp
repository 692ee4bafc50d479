// Tiles of pairs and vectors of neighbouring rows, for the loops of a score modification
// (core/cpu/attention/score_mod_loops.hpp). As in that file, all code is inlined.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/attention/pair_functions.hpp"
#include "core/attention/score_mod.hpp"
#include "core/cpu/attention/tile.hpp"

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

// A tile of pairs, as passed to the loops, and the memory of one thread. All tiles are [tile_keys, tile_rows].
template <class T>
struct ScoreModTileViews {
  RowTile rows;
  KeyTile keys;
  T* row_scalars = nullptr;       // [rows, tile_rows]
  T* head_scalars = nullptr;      // [heads]
  T* values = nullptr;            // table without knots: [tile_rows, ld]
  Entry<T>* table = nullptr;      // table with knots: [tile_rows, ld]
  Entry<T>* d_table = nullptr;    // gradient of either table
  std::int64_t entries = 0;       // P+1, or the number of knots
  std::int64_t ld = 0;            // entries, plus one without knots
  const T* knots = nullptr;       // with knots: [entries]
  T* saved_score = nullptr;       // p.s; null if no gradient is computed
  T* saved_sum = nullptr;         // with a gate: p.sum
  T* saved_gate_slope = nullptr;  // and with keeps_gate_slope the gate's derivative
  T* saved_entry = nullptr;       // without knots: p.entry unless it is only added
  T* saved_slope = nullptr;       // and its slope
  // If it saturates: for each vector of rows the number of the tile's first keys to the left of saturation. No gate
  // or place is computed for these keys.
  std::int64_t* saturated_keys = nullptr;
};

template <class Mod>
inline constexpr auto scalar_count = static_cast<std::size_t>(attention::traits_of<Mod>.rows) +
                                     static_cast<std::size_t>(attention::traits_of<Mod>.heads);

template <class V>
inline constexpr auto lanes_of = static_cast<std::int64_t>(sizeof(V) / sizeof(Scalar<V>));

template <class V>
inline constexpr auto vectors_of_rows = static_cast<std::size_t>(tile_rows / lanes_of<V>);

// Rows of the tile whose queries attend to key j. Padding lanes may be included: their numbers are 0 and their results
// are not used.
TALLY_INLINE Lanes unmasked_queries(const RowTile& rows, const KeyTile& keys, std::int64_t j) {
  Lanes unmasked = keys.unmasked_lanes(rows, j);
  const auto queries = static_cast<std::int32_t>(rows.rows);
  unmasked.end = unmasked.end < queries ? unmasked.end : queries;
  unmasked.begin = unmasked.begin < unmasked.end ? unmasked.begin : unmasked.end;
  return unmasked;
}

// A vector of neighbouring rows.
template <class V, class Mod>
struct PairLanes {
  using T = Scalar<V>;
  using Counts = VectorOfCounts<T, sizeof(V)>;
  using Count = std::conditional_t<sizeof(T) == sizeof(std::int32_t), std::int32_t, std::int64_t>;
  static constexpr ScoreModTraits traits = attention::traits_of<Mod>;

  Counts lane;     // within the tile
  V row_distance;  // to key 0 of the tile
  std::array<V, scalar_count<Mod> == 0 ? 1 : scalar_count<Mod>> scalars;

  TALLY_INLINE PairLanes(const ScoreModTileViews<T>& tile, std::int64_t first) {
    for (std::int64_t l = 0; l < lanes_of<V>; ++l) {
      lane[l] = static_cast<Count>(first + l);
      row_distance[l] = static_cast<T>(tile.rows.last_key - tile.keys.first + first + l);
    }
    for (std::size_t n = 0; n < scalar_count<Mod>; ++n) {
      const auto index = static_cast<std::int64_t>(n);
      scalars[n] = index < traits.rows ? load_vector<V>(tile.row_scalars + index * tile_rows + first)
                                       : splat<V>(tile.head_scalars[index - traits.rows]);
    }
  }
  // Whether these lanes attend to the key.
  TALLY_INLINE auto within(const Lanes& unmasked) const {
    return (lane >= Count{unmasked.begin}) & (lane < Count{unmasked.end});
  }
  template <bool differentiates>
  TALLY_INLINE auto pair(const V& s, const V& gate_logit, const V& sum, std::int64_t key) const {
    return attention::PairInputs<V, Mod, differentiates>::of(s, gate_logit, sum, row_distance - static_cast<T>(key),
                                                             [&](std::size_t n)
                                                                 TALLY_INLINED -> const V& { return scalars[n]; });
  }
};

template <class V>
using AllLanes = std::make_index_sequence<static_cast<std::size_t>(lanes_of<V>)>;

// Whether a comparison holds in any lane.
template <class Condition>
TALLY_INLINE bool any(const Condition& condition) {
  std::uint64_t words[sizeof condition / sizeof(std::uint64_t)], all = 0;
  __builtin_memcpy(words, &condition, sizeof condition);
  for (const std::uint64_t word : words) all |= word;
  return all != 0;
}

template <class V>
using OfRows = std::array<V, vectors_of_rows<V>>;

// Places in the tables of all rows for one key, and the entries there.
template <class V>
struct TablePlaces {
  using T = Scalar<V>;
  using Counts = VectorOfCounts<T, sizeof(V)>;
  using Count = std::remove_cvref_t<decltype(Counts{}[0])>;
  alignas(64) Count at[tile_rows];
  alignas(64) T beyond[tile_rows];  // distance of a place from the entry below it
  alignas(64) Neighbours<T> found[tile_rows];
  alignas(64) Entry<T> added[tile_rows];

  // As attention::table_index, for the places p of the lanes from `first` on.
  TALLY_INLINE void set(std::int64_t first, const Counts& lane, const V& p, const ScoreModTileViews<T>& tile) {
    const V last = splat<V>(static_cast<T>(tile.entries - 1)), c = choose(last < p, last, p);
    const Counts low = __builtin_convertvector(choose(c > 0, c, V{}), Counts);
    const Counts place = lane * static_cast<Count>(tile.ld) + low;
    __builtin_memcpy(at + first, &place, sizeof place);
    store_vector<V>(beyond + first, c - __builtin_convertvector(low, V));
  }
  TALLY_INLINE V get(std::int64_t first) const { return load_vector<V>(beyond + first); }
  // Values and slopes of the entries found.
  TALLY_INLINE V low(std::int64_t first) const { return every_second<0>(first, AllLanes<V>{}); }
  TALLY_INLINE V rise(std::int64_t first) const { return every_second<1>(first, AllLanes<V>{}) - low(first); }
  TALLY_INLINE void put(std::int64_t first, const V& to_low, const V& to_rise) {
    put(first, to_low, to_rise, std::make_index_sequence<AllLanes<V>::size() / 2>{});
  }

 private:
  template <int begin, std::size_t... lane>
  TALLY_INLINE V every_second(std::int64_t first, std::index_sequence<lane...>) const {
    const V a = load_vector<V>(&found[first].low), b = load_vector<V>(&found[first + lanes_of<V> / 2].low);
    return __builtin_shufflevector(a, b, static_cast<int>(2 * lane + begin)...);
  }
  template <std::size_t... half>
  TALLY_INLINE void put(std::int64_t first, const V& a, const V& b, std::index_sequence<half...>) {
    constexpr std::size_t all = 2 * sizeof...(half);
    store_vector<V>(&added[first].low, interleaved<0, all>(a, b, AllLanes<V>{}));
    store_vector<V>(&added[first + lanes_of<V> / 2].low, interleaved<all / 2, all>(a, b, AllLanes<V>{}));
  }
  template <std::size_t begin, std::size_t all, std::size_t... lane>
  TALLY_INLINE static V interleaved(const V& a, const V& b, std::index_sequence<lane...>) {
    return __builtin_shufflevector(a, b, static_cast<int>(begin + lane / 2 + (lane % 2 == 0 ? 0 : all))...);
  }
};

// The segments between knots in which a vector of rows last read its tables. Neighbouring keys usually have
// neighbouring places, so each knot is passed once and few look-ups are needed.
template <class V>
struct KnotSegments {
  using T = Scalar<V>;
  using Counts = VectorOfCounts<T, sizeof(V)>;
  using Count = std::remove_cvref_t<decltype(Counts{}[0])>;
  // A segment includes the places after `after` (its begin or minus infinity) up to its end. All 0: an empty segment.
  V after, end, begin;
  V value, rise;      // at its begin, and its slope
  V d_value, d_rise;  // gradients accumulated since the segment was entered
  V beyond;           // distance of the places from its begin
  Counts at;          // index in the tables

  // Moves to the segments of the places x, as attention::knot_before; any segment if x is NaN.
  template <bool differentiates>
  TALLY_INLINE void move(const ScoreModTileViews<T>& tile, std::int64_t first, const V& x) {
    if (any((x <= after) | (end < x))) {
      if constexpr (differentiates) close(tile, first);
      look_up(tile, first, x);
    }
    beyond = x - begin;
  }
  TALLY_INLINE V entry() const { return value + beyond * rise; }
  // Adds the accumulated gradients to the tables.
  TALLY_INLINE void close(const ScoreModTileViews<T>& tile, std::int64_t first) {
    for (std::int64_t l = 0; l < lanes_of<V>; ++l) {
      Entry<T>& entry = tile.d_table[(first + l) * tile.ld + at[l]];
      entry = {entry.low + d_value[l], entry.rise + d_rise[l]};
    }
    d_value = d_rise = V{};
  }

 private:
  TALLY_INLINE void look_up(const ScoreModTileViews<T>& tile, std::int64_t first, const V& x) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const bool none_yet = after[0] == end[0];
    for (std::int64_t l = 0; l < lanes_of<V>; ++l) {
      std::int64_t n = at[none_yet && l > 0 ? l - 1 : l];
      if (none_yet && l == 0) n = attention::knot_before(tile.knots, static_cast<std::int32_t>(tile.entries), x[0]);
      while (n > 0 && !(tile.knots[n] < x[l])) --n;
      while (n + 1 < tile.entries && tile.knots[n + 1] < x[l]) ++n;
      const Entry<T> entry = tile.table[(first + l) * tile.ld + n];
      at[l] = static_cast<Count>(n);
      begin[l] = tile.knots[n];
      after[l] = n > 0 ? begin[l] : -infinity;
      end[l] = n + 1 < tile.entries ? tile.knots[n + 1] : infinity;
      value[l] = entry.low;
      rise[l] = entry.rise;
    }
  }
};

// Whether the running sums of all rows of a vector are saturated, so that gates no longer matter. NaN is not saturated.
template <class V, class Mod>
TALLY_INLINE bool is_saturated(const ScoreModTileViews<Scalar<V>>& tile, const PairLanes<V, Mod>& at, const V& sum) {
  using T = Scalar<V>;
  const auto queries = static_cast<std::int32_t>(tile.rows.rows);
  return !any(~(sum >= static_cast<T>(tile.entries - 1)) & (at.lane < queries));
}

// The last entry of each row's table.
template <class V>
TALLY_INLINE OfRows<V> last_entries(const ScoreModTileViews<Scalar<V>>& tile) {
  OfRows<V> last{};
  for (std::int64_t i = 0; i < tile_rows; ++i) {
    last[static_cast<std::size_t>(i / lanes_of<V>)][i % lanes_of<V>] = tile.values[i * tile.ld + tile.entries - 1];
  }
  return last;
}

}  // namespace tally::cpu
