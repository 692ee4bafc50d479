// Tiled attention on the device: a block has up to four warps with 16 queries each, and takes 32 keys at a time. A warp
// has a tile of 16 x 32 pairs in the registers of its threads (cuda/instructions.hpp: a row belongs to four lanes, 8
// columns of it to each), makes it by products of tiles in shared memory, on tensor cores where that is allowed, and
// sums along its rows by shuffles. At most D of a head's width lies in shared memory at a time, so that heads may have
// any width; D of the results' columns belong to a block, the grid's z counts them ("slices").
//
// Every number has one owner: nothing is added by atomic operations, and what several blocks share each writes by
// itself, to be added afterwards in fixed order.
#pragma once

#include "cuda/attention_product.hpp"
#include "cuda/attention_scan.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Of a block; in double half as many have all their tiles in shared memory. Tiles lie there as for so many, however
// many there are, so that their addresses are constants.
template <class T>
inline constexpr int most_warps = sizeof(T) > sizeof(float) ? 2 : 4;
template <class T>
inline constexpr int most_rows = most_warps<T>* warp_rows;

// f(r, c) for each pair that a thread has of a tile, in an order and number that the compiler knows: arrays of pairs
// stay in registers.
template <class F>
__device__ __forceinline__ void each_pair(F&& f) {
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    TALLY_UNROLL
    for (int c = 0; c < columns; ++c) f(r, c);
  }
}

// The offset of a thread's pair in its warp's rows of a tile in shared memory.
template <class T>
__device__ T& own_pair(T* target, int r, int c) {
  return target[tile_row(r) * pair_ld + tile_column(c)];
}
// The pairs of a thread become f(r, c) one after the other: for what is long, and would be sixteen times as long.
template <class T, class F>
__device__ __forceinline__ void pairs_in_turn(T* target, const F& f) {
  TALLY_ROLLED
  for (int n = 0; n < 2 * columns; ++n) own_pair(target, n / columns, n % columns) = f(n / columns, n % columns);
}

// f(weight, factor) for each weight of a warp's rows of a tile in shared memory, with its factor under dropout. A lane
// takes four neighbours at a time, which share a block of random numbers, whosever pairs they are: __syncwarp before
// and after.
template <class T, class F>
__device__ void each_dropped(const DeviceCall<T>& call, const ThreadRows& at, int first_key, T* weights, const F& f) {
  constexpr int blocks = tile / 4 + 1;  // of a row; the first may begin before the tile
  const RandomStream stream = call.dropout_stream.now();
  const std::int64_t first_row =
      (static_cast<std::int64_t>(at.batch) * call.heads + at.head) * call.drop_rows + call.drop_first_row + at.first;
  TALLY_ROLLED
  for (int n = lane_of_warp(); n < warp_rows * blocks; n += 32) {
    const int line = n / blocks;
    const std::int64_t first = static_cast<std::int64_t>(stream.first) +  // element of the stream
                               (first_row + line) * call.drop_columns + first_key;
    const std::int64_t block = first / 4 + n % blocks;
    const int begin = static_cast<int>(4 * block - first);
    const PhiloxBlock bits = stream.block(static_cast<std::uint64_t>(block));
    TALLY_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (begin + i < 0 || begin + i >= tile) continue;
      const bool kept = static_cast<std::int32_t>(bits[static_cast<std::size_t>(i)] >> 8) >= call.drop_below;
      f(weights[line * pair_ld + begin + i], kept ? call.kept_scale : T{0});
    }
  }
}

// A block's warps for so many rows.
template <class T>
int warps_for(std::int64_t rows) {
  return static_cast<int>(std::min<std::int64_t>(most_warps<T>, (rows + warp_rows - 1) / warp_rows));
}
__device__ inline int slice_of_block() { return static_cast<int>(blockIdx.z); }

// Keys of the tile that this query sees.
__device__ inline int seen_of_tile(int query, int first_key) {
  return static_cast<int>(query - first_key + 1 < tile ? query - first_key + 1 : tile);
}

template <class T>
__device__ __forceinline__ void exchange_rows(T (&x)[2][columns]) {
  TALLY_UNROLL
  for (int c = 0; c < columns; ++c) {
    const T upper = x[0][c];
    x[0][c] = x[1][c];
    x[1][c] = upper;
  }
}

// A policy's numbers of a thread's two rows and of their head.
template <class T, class Policy>
struct RowNumbers {
  static constexpr int rows = Policy::needs.rows, heads = Policy::needs.heads;
  T numbers[2][static_cast<std::size_t>(rows + heads == 0 ? 1 : rows + heads)];

  __device__ RowNumbers(const DeviceCall<T>& call, const ThreadRows& at) {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      if constexpr (rows > 0) {
        const Rows<T> own = call.rows.head(at.batch, at.head);
        TALLY_UNROLL
        for (int n = 0; n < rows; ++n) numbers[r][n] = at.valid(r) ? own.at(at.row(r), n) : T{0};
      }
      TALLY_UNROLL
      for (int n = 0; n < heads; ++n) {
        numbers[r][rows + n] = call.head_numbers[at.head * call.head_step + n * call.head_number_step];
      }
    }
  }
  __device__ T at(int r, int n) const { return numbers[r][n]; }
};

// Whether a policy reads its table elsewhere than at its sum.
template <class Policy>
inline constexpr bool has_place =
    Policy::needs.table&& requires(const attention::PairIn<float, Policy, false, true>& p) {
  Policy::place(p);
};

// Where the row's table is read: the entry, and how far beyond it; `last` is its last one.
template <class Policy, class T>
__device__ attention::Place<T> place_in_table(const DeviceCall<T>& call, T place, int last) {
  if constexpr (Policy::needs.knots) {
    const std::int32_t low = attention::knot_before(call.knots, last + 1, place);
    return {low, place - call.knots[low]};
  } else {
    return attention::place_in_table(place, static_cast<T>(last));
  }
}

// The pairs that a thread has of one tile.
template <class T, Family family, class Policy = NoPolicy>
struct Pairs {
  T logits[2][columns] = {};
  // Of a policy: its p.s, p.other and p.sum;
  T scores[2][columns] = {}, others[2][columns] = {}, positions[2][columns] = {};
  // what pairs read of its table, the slope there, and where that is if not at the position.
  T entries[2][columns] = {}, rises[2][columns] = {}, places[2][columns] = {};
  bool settled = false;  // every position of the warp is beyond the table
  // Columns that a row sees: up to the last (-1: none), from the first one of its window on or below `always`.
  int last_seen[2], first_seen[2], always;

  __device__ Pairs(const DeviceCall<T>& call, const ThreadRows& at, int first_key)
      : always(static_cast<int>(call.visible.first < first_key + tile ? call.visible.first : first_key + tile) -
               first_key) {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int last = at.query(r) - first_key;
      last_seen[r] = !at.valid(r) || last < 0 ? -1 : last < tile ? static_cast<int>(last) : tile - 1;
      first_seen[r] = static_cast<int>(call.visible.begin(at.query(r))) - first_key;
    }
  }
  __device__ bool sees(int r, int c) const {
    const int column = tile_column(c);
    return column <= last_seen[r] && (column >= first_seen[r] || column < always);
  }
  // Whether the row sees anything of the tile: only then have its running sums been kept there.
  __device__ bool takes_part(int r) const { return last_seen[r] >= 0 && (last_seen[r] >= first_seen[r] || always > 0); }

  // From scores to logits. `sums`: the running sums along the rows, at the right edge of the tile before, at its left
  // edge afterwards, but beyond a table, where they stay. scratch: the warp's rows of a tile in shared memory.
  __device__ void finish(const DeviceCall<T>& call, const ThreadRows& at, int first_key,
                         const T (&gate_scores)[2][columns], RunningSum<T> (&sums)[2], T* scratch) {
    if constexpr (has_policy<Policy>) {
      take_scores(call, at, first_key, gate_scores, scratch);
      apply_policy(call, at, first_key, sums);
      if (!Policy::needs.biased) add_biases(call, at, first_key, scratch);
    } else {
      add_biases(call, at, first_key, scratch);
    }
  }

  // The policy's pair (r, c), by the numbers of a thread's rows.
  template <bool differentiates, bool for_logit, class Numbers>
  __device__ auto pair(const ThreadRows& at, int first_key, const Numbers& numbers, int r, int c) const {
    return attention::PairIn<T, Policy, differentiates, for_logit>::of(
        scores[r][c], others[r][c], positions[r][c], static_cast<T>(at.query(r) - first_key - tile_column(c)),
        [&](std::size_t n) { return numbers.at(r, static_cast<int>(n)); });
  }
  // The same as `logit` sees it.
  template <bool differentiates, class Numbers>
  __device__ auto pair_of_logit(const ThreadRows& at, int first_key, const Numbers& numbers, int r, int c) const {
    const auto own = pair<differentiates, true>(at, first_key, numbers, r, c);
    if constexpr (Policy::needs.table) {
      return attention::PairWithEntry<T, Policy, differentiates>(own, entries[r][c], rises[r][c],
                                                                 attention::place_of(own));
    } else {
      return own;
    }
  }

 private:
  __device__ void add_biases(const DeviceCall<T>& call, const ThreadRows& at, int first_key, T* scratch) {
    if (call.bias_count > 0) {
      pairs_in_turn(scratch, [&](int r, int c) {
        const bool seen = tile_column(c) <= of_row(r, last_seen[0], last_seen[1]);
        return seen ? bias_of(call, at, r, first_key + tile_column(c)) : T{0};
      });
      each_pair([&](int r, int c) { logits[r][c] += own_pair(scratch, r, c); });
    }
  }

  // What a policy sees of scores.
  __device__ void take_scores(const DeviceCall<T>& call, const ThreadRows& at, int first_key,
                              const T (&gate_scores)[2][columns], T* scratch) {
    if (Policy::needs.biased) add_biases(call, at, first_key, scratch);
    each_pair([&](int r, int c) {
      scores[r][c] = logits[r][c];
      if (Policy::needs.other) others[r][c] = gate_scores[r][c];
    });
  }

  __device__ void apply_policy(const DeviceCall<T>& call, const ThreadRows& at, int first_key,
                               RunningSum<T> (&sums)[2]) {
    const RowNumbers<T, Policy> numbers(call, at);
    if constexpr (Policy::needs.settles) {
      const T last = static_cast<T>(call.entries - 1);
      bool beyond = (!at.valid(0) || sums[0].sum >= last) && (!at.valid(1) || sums[1].sum >= last);
      if (call.own_gates) {  // which may be NaN where the score is not
        each_pair([&](int r, int c) { beyond = beyond && (!sees(r, c) || others[r][c] == others[r][c]); });
      }
      settled = __all_sync(whole_warp, beyond);
    }
    if constexpr (Policy::needs.scan) {
      if (!settled) add_up_gates(at, first_key, numbers, sums);
    }
    if constexpr (has_place<Policy>) {
      each_pair([&](int r, int c) {
        places[r][c] = attention::place_of(pair<false, true>(at, first_key, numbers, r, c)).value;
      });
      read_tables(call, at, places);
    } else if constexpr (Policy::needs.table) {
      read_tables(call, at, positions);
    }
    each_pair([&](int r, int c) {
      logits[r][c] = attention::logit_of<Policy>(pair_of_logit<false>(at, first_key, numbers, r, c)).value;
    });
  }

  // p.sum of gates: their running sum, without the pair's own gate where the policy does not ask for it.
  __device__ void add_up_gates(const ThreadRows& at, int first_key, const RowNumbers<T, Policy>& numbers,
                               RunningSum<T> (&sums)[2]) {
    T own[2][columns] = {};
    each_pair([&](int r, int c) {
      const T gate = attention::gate_of<Policy>(pair<false, false>(at, first_key, numbers, r, c)).value;
      positions[r][c] = sees(r, c) ? gate : T{0};
      if constexpr (!Policy::needs.own) own[r][c] = positions[r][c];
    });
    sum_leftward(positions, sums);
    if constexpr (!Policy::needs.own) each_pair([&](int r, int c) { positions[r][c] -= own[r][c]; });
  }

  // The numbers of a thread's two rows of x; those of lanes beyond the last row are another's, whose pairs are not
  // seen.
  __device__ static const T* row_of(const Rows<T>& x, const ThreadRows& at, int r) {
    return &x.head(at.batch, at.head).at(at.valid(r) ? at.row(r) : at.queries - 1);
  }

  // Entries and rises, at these places.
  __device__ void read_tables(const DeviceCall<T>& call, const ThreadRows& at, T (&where)[2][columns]) {
    const T *const upper = row_of(call.table, at, 0), *const lower = row_of(call.table, at, 1);
    const std::int64_t step = call.table.column_step;
    const int end = call.entries - 1;
    if (settled) {
      const T of_upper = upper[end * step], of_lower = lower[end * step];
      each_pair([&](int r, int c) {
        entries[r][c] = of_row(r, of_upper, of_lower);
        rises[r][c] = 0;
      });
      return;
    }
    // One row after the other: the addresses of both would not find registers.
    TALLY_ROLLED
    for (int r = 0; r < 2; ++r) {
      const T* const row = of_row(r, upper, lower);
      TALLY_UNROLL
      for (int c = 0; c < columns; ++c) {
        const auto place = place_in_table<Policy>(call, where[0][c], end);
        const T* const z = row + (Policy::needs.knots ? 2 : 1) * place.low * step;
        const T low = *z, rise = Policy::needs.knots ? z[step] : place.low < end ? z[step] - low : T{0};
        rises[0][c] = rise;
        entries[0][c] = attention::interpolate(low, rise, place.w);
      }
      exchange_rows(where);
      exchange_rows(rises);
      exchange_rows(entries);
    }
  }
};

// e^(l - shift) of a softmax, or what another rule takes but softpick.
template <class T>
__device__ T weight_of(Rule rule, const DeviceCall<T>& call, T logit, T shift) {
  return rule == Rule::sigmoid ? math::sigmoid(logit - call.offset) : math::exp(logit - shift);
}

template <class T>
__device__ void copy_pairs(T (&to)[2][columns], const T (&from)[2][columns]) {
  each_pair([&](int r, int c) { to[r][c] = from[r][c]; });
}
// Into a warp's rows of a tile in shared memory.
template <class T>
__device__ void store_pairs(T* target, const T (&from)[2][columns]) {
  each_pair([&](int r, int c) { own_pair(target, r, c) = from[r][c]; });
}

// A thread's results of one slice, to x.
template <int D, class T, std::size_t C>
__device__ void store_rows(const Rows<T>& x, const ThreadRows& at, const T (&values)[2][C], int slice, int width,
                           const T (&factor)[2]) {
  if (x.data == nullptr) return;
  const Rows<T> own = x.head(at.batch, at.head);
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    TALLY_UNROLL
    for (int c = 0; c < static_cast<int>(C); ++c) {
      const int column = slice * D + tile_column(c);
      if (at.valid(r) && column < width) own.at(at.row(r), column) = factor[r] * values[r][c];
    }
  }
}

// x: `heads` of all the batch; y: blocks of so many rows or keys; z: slices. A grid's blocks begin in the order of x,
// then y, so that the longest of all heads come first.
inline dim3 grid_of(std::int64_t heads, std::int64_t count, int each, std::int64_t slices) {
  const std::int64_t blocks = (count + each - 1) / each;
  constexpr std::int64_t most_blocks = 65535;
  check(blocks <= most_blocks, "attention", "the CUDA kernels take texts of up to ", most_blocks * each,
        " tokens, not ", count);
  return {static_cast<unsigned>(heads), static_cast<unsigned>(blocks), static_cast<unsigned>(slices)};
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
