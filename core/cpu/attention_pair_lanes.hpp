// What the loops of a pair policy (core/cpu/attention_pair_loops.hpp) go along: the pairs of a tile, and vectors of
// neighbouring rows. What is no part of a policy's own code is inlined, as there.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/attention/pair.hpp"
#include "core/cpu/attention_table.hpp"
#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

// A tile of pairs as the loops take it. All tiles are [tile_keys, tile_rows].
template <class T>
struct PairTileViews {
  RowTile rows;
  KeyTile keys;
  const T* row_numbers;   // [needs.rows, tile_rows]
  const T* head_numbers;  // [needs.heads]
  const Entry<T>* table;  // where the policy reads one: [tile_rows, entries]
  Entry<T>* d_table;
  std::int64_t entries;           // P+1, or as many as knots
  const T* knots;                 // where it is read between knots: [entries]
  T* kept_score;                  // scores as the policy sees them; null where no gradient is wanted
  T *kept_sum, *kept_gate_slope;  // where it scans: p.sum, and the gate's derivative where keeps_gate_slope says so
  T *kept_entry, *kept_rise;      // of the table, where it reads one: p.entry unless it only adds it, and its slope
  T* kept_down;                   // p.down, where it sums down the queries; of each key then:
  double* down;                   // what the rows before these add up to; in backward those up to the last of these
  double* d_down;                 // what flows back from the rows after these
};

template <class Policy>
inline constexpr auto pair_numbers = static_cast<std::size_t>(Policy::needs.rows) +
                                     static_cast<std::size_t>(Policy::needs.heads);

template <class V>
inline constexpr auto lanes_of = static_cast<std::int64_t>(sizeof(V) / sizeof(Scalar<V>));

template <class V>
inline constexpr auto vectors_of_rows = static_cast<std::size_t>(tile_rows / lanes_of<V>);

// Rows of the tile whose queries see key j. What a policy makes of a lane without a query may be anything, as its
// numbers are 0.
TALLY_INLINE Lanes queries_seeing(const RowTile& rows, const KeyTile& keys, std::int64_t j) {
  Lanes seeing = keys.seeing(rows, j);
  const auto queries = static_cast<std::int32_t>(rows.rows);
  seeing.end = seeing.end < queries ? seeing.end : queries;
  seeing.begin = seeing.begin < seeing.end ? seeing.begin : seeing.end;
  return seeing;
}

// A vector of neighbouring rows.
template <class V, class Policy>
struct PairLanes {
  using T = Scalar<V>;
  using Counts = VectorOfCounts<T, sizeof(V)>;
  using Count = std::conditional_t<sizeof(T) == sizeof(std::int32_t), std::int32_t, std::int64_t>;
  static constexpr PairNeeds needs = Policy::needs;

  Counts lane;     // within the tile
  V row_distance;  // of key 0 of the tile
  std::array<V, pair_numbers<Policy> == 0 ? 1 : pair_numbers<Policy>> numbers;

  TALLY_INLINE PairLanes(const PairTileViews<T>& tile, std::int64_t first) {
    for (std::int64_t l = 0; l < lanes_of<V>; ++l) {
      lane[l] = static_cast<Count>(first + l);
      row_distance[l] = static_cast<T>(tile.rows.last_key - tile.keys.first + first + l);
    }
    for (std::size_t n = 0; n < pair_numbers<Policy>; ++n) {
      const auto number = static_cast<std::int64_t>(n);
      numbers[n] = number < needs.rows ? load_vector<V>(tile.row_numbers + number * tile_rows + first)
                                       : splat<V>(tile.head_numbers[number - needs.rows]);
    }
  }
  // Whether these lanes see the key.
  TALLY_INLINE auto seen(const Lanes& seeing) const {
    return (lane >= Count{seeing.begin}) & (lane < Count{seeing.end});
  }
  template <bool differentiates, bool for_logit>
  TALLY_INLINE auto pair(const V& s, const V& other, const V& sum, std::int64_t key, const V& down = V{}) const {
    return attention::PairIn<V, Policy, differentiates, for_logit>::of(
        s, other, sum, row_distance - static_cast<T>(key),
        [&](std::size_t n) TALLY_INLINED -> const V& { return numbers[n]; }, down);
  }
};

template <class V>
using AllLanes = std::make_index_sequence<static_cast<std::size_t>(lanes_of<V>)>;

// x moved by so many lanes towards the last one, or the first; 0 where nothing comes from.
template <std::size_t by, class V, std::size_t... lane>
TALLY_INLINE V moved_up(const V& x, std::index_sequence<lane...>) {
  return __builtin_shufflevector(V{}, x, static_cast<int>(sizeof...(lane) + lane - by)...);
}
template <std::size_t by, class V, std::size_t... lane>
TALLY_INLINE V moved_down(const V& x, std::index_sequence<lane...>) {
  return __builtin_shufflevector(x, V{}, static_cast<int>(lane + by)...);
}
// For each lane the sum of x over the lanes before it, or after it.
template <class V, std::size_t by = 1>
TALLY_INLINE V sums_before(const V& x) {
  if constexpr (by == AllLanes<V>::size()) {
    return moved_up<1>(x, AllLanes<V>{});
  } else {
    return sums_before<V, 2 * by>(x + moved_up<by>(x, AllLanes<V>{}));
  }
}
template <class V, std::size_t by = 1>
TALLY_INLINE V sums_after(const V& x) {
  if constexpr (by == AllLanes<V>::size()) {
    return moved_down<1>(x, AllLanes<V>{});
  } else {
    return sums_after<V, 2 * by>(x + moved_down<by>(x, AllLanes<V>{}));
  }
}

template <std::size_t by, class V, std::size_t... lane>
TALLY_INLINE V moved_around(const V& x, std::index_sequence<lane...>) {
  return __builtin_shufflevector(x, x, static_cast<int>((lane + by) % sizeof...(lane))...);
}
// The least of all lanes, none of which is NaN.
template <class V, std::size_t by = 1>
TALLY_INLINE Scalar<V> least_of(const V& x) {
  if constexpr (by == AllLanes<V>::size()) {
    return x[0];
  } else {
    const V other = moved_around<by>(x, AllLanes<V>{});
    return least_of<V, 2 * by>(choose(x < other, x, other));
  }
}

template <class V>
using OfRows = std::array<V, vectors_of_rows<V>>;

// Knots between which the places of a vector of rows were last: where neighbouring keys have neighbouring places few
// are looked at.
struct KnotRange {
  std::int64_t begin = 0, end = 0;  // of what the least place is beyond, and the largest
};

// Places in the tables of all rows for one key, and what is found there.
template <class V>
struct TablePlaces {
  using T = Scalar<V>;
  using Counts = VectorOfCounts<T, sizeof(V)>;
  using Count = std::remove_cvref_t<decltype(Counts{}[0])>;
  alignas(64) Count at[tile_rows];
  alignas(64) T beyond[tile_rows];  // how far places are beyond the entry below them
  alignas(64) Entry<T> entries[tile_rows];
  std::array<KnotRange, vectors_of_rows<V>> ranges{};

  // As attention::place_in_table, of lanes from `first` on at the places p.
  TALLY_INLINE void set(std::int64_t first, const Counts& lane, const V& p, std::int64_t entry_count) {
    const V last = splat<V>(static_cast<T>(entry_count - 1)), c = choose(last < p, last, p);
    const Counts low = __builtin_convertvector(choose(c > 0, c, V{}), Counts);
    const Counts place = lane * static_cast<Count>(entry_count) + low;
    __builtin_memcpy(at + first, &place, sizeof place);
    store_vector<V>(beyond + first, c - __builtin_convertvector(low, V));
  }
  // Between knots: as attention::knot_before.
  TALLY_INLINE void set(std::int64_t first, const Counts& lane, const V& x, const T* knots, std::int64_t count) {
    KnotRange& range = ranges[static_cast<std::size_t>(first / lanes_of<V>)];
    const V infinite = splat<V>(std::numeric_limits<T>::infinity());
    const T least = least_of(choose(x == x, x, infinite)), largest = -least_of(choose(x == x, -x, infinite));
    while (range.begin > 0 && !(knots[range.begin] < least)) --range.begin;
    while (range.begin + 1 < count && knots[range.begin + 1] < least) ++range.begin;
    while (range.end > 0 && !(knots[range.end] < largest)) --range.end;
    while (range.end + 1 < count && knots[range.end + 1] < largest) ++range.end;
    Counts n = Counts{} + static_cast<Count>(range.begin);
    V before = splat<V>(knots[range.begin]);
    for (std::int64_t knot = range.begin + 1; knot <= range.end; ++knot) {
      const auto passed = splat<V>(knots[knot]) < x;
      n -= passed;
      before = choose(passed, splat<V>(knots[knot]), before);
    }
    const Counts place = lane * static_cast<Count>(count) + n;
    __builtin_memcpy(at + first, &place, sizeof place);
    store_vector<V>(beyond + first, x - before);
  }
  TALLY_INLINE V get(std::int64_t first) const { return load_vector<V>(beyond + first); }
  // Values and slopes, one after the other in memory.
  TALLY_INLINE V low(std::int64_t first) const { return every_second<0>(first, AllLanes<V>{}); }
  TALLY_INLINE V rise(std::int64_t first) const { return every_second<1>(first, AllLanes<V>{}); }
  TALLY_INLINE void put(std::int64_t first, const V& to_low, const V& to_rise) {
    put(first, to_low, to_rise, std::make_index_sequence<AllLanes<V>::size() / 2>{});
  }

 private:
  const T* numbers(std::int64_t first) const { return &entries[first].low; }
  template <int begin, std::size_t... lane>
  TALLY_INLINE V every_second(std::int64_t first, std::index_sequence<lane...>) const {
    const V a = load_vector<V>(numbers(first)), b = load_vector<V>(numbers(first + lanes_of<V> / 2));
    return __builtin_shufflevector(a, b, static_cast<int>(2 * lane + begin)...);
  }
  template <std::size_t... half>
  TALLY_INLINE void put(std::int64_t first, const V& a, const V& b, std::index_sequence<half...>) {
    constexpr std::size_t all = 2 * sizeof...(half);
    store_vector<V>(&entries[first].low, interleaved<0, all>(a, b, AllLanes<V>{}));
    store_vector<V>(&entries[first + lanes_of<V> / 2].low, interleaved<all / 2, all>(a, b, AllLanes<V>{}));
  }
  template <std::size_t begin, std::size_t all, std::size_t... lane>
  TALLY_INLINE static V interleaved(const V& a, const V& b, std::index_sequence<lane...>) {
    return __builtin_shufflevector(a, b, static_cast<int>(begin + lane / 2 + (lane % 2 == 0 ? 0 : all))...);
  }
};

// The last entry of each row's table.
template <class V>
TALLY_INLINE OfRows<V> last_entries(const PairTileViews<Scalar<V>>& tile) {
  OfRows<V> last{};
  for (std::int64_t i = 0; i < tile_rows; ++i) {
    last[static_cast<std::size_t>(i / lanes_of<V>)][i % lanes_of<V>] = tile.table[(i + 1) * tile.entries - 1].low;
  }
  return last;
}

}  // namespace tally::cpu
