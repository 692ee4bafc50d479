// Fused attention on the device: a block has up to four warps with 16 queries each, and takes 32 keys at a time. A warp
// has a tile of 16 x 32 pairs in the registers of its threads (cuda/runtime/instructions.hpp: a row belongs to four
// lanes, and each has 8 of its columns). It computes the tile by products of tiles in shared memory, on tensor cores if
// allowed, and sums along the rows by shuffles. Heads may have any width, because shared memory holds at most D columns
// of a head at a time. A block owns D columns of the results, a "slice"; the grid's z counts slices.
//
// Every number has one owner, and there are no atomic operations. If several blocks contribute to a sum, each writes
// its part, and the parts are added afterwards in fixed order.
#pragma once

#include "cuda/attention/product.hpp"
#include "cuda/attention/scan.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Largest number of warps of a block. In double it is half, so that all tiles fit into shared memory. Tiles there are
// always laid out for this number, so that their addresses are constants.
template <class T>
inline constexpr int most_warps = sizeof(T) > sizeof(float) ? 2 : 4;
template <class T>
inline constexpr int most_rows = most_warps<T>* warp_rows;

// f(r, c) for each pair of a tile that a thread has. The compiler knows order and number, so arrays of pairs stay in
// registers.
template <class F>
__device__ __forceinline__ void each_pair(F&& f) {
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    TALLY_UNROLL
    for (int c = 0; c < columns; ++c) f(r, c);
  }
}

// A thread's pair in its warp's rows of a tile in shared memory.
template <class T>
__device__ T& own_pair(T* target, int r, int c) {
  return target[tile_row(r) * pair_ld + tile_column(c)];
}
// Sets the pairs of a thread to f(r, c) in a loop that is not unrolled. For long functions, whose code would otherwise
// be repeated sixteen times.
template <class T, class F>
__device__ __forceinline__ void pairs_in_turn(T* target, const F& f) {
  TALLY_ROLLED
  for (int n = 0; n < 2 * columns; ++n) own_pair(target, n / columns, n % columns) = f(n / columns, n % columns);
}

// f(weight, factor) for each weight of a warp's rows of a tile in shared memory, with its dropout factor. A lane takes
// four neighbours at a time, which share a block of random scalars but may be other threads' pairs. So __syncwarp is
// needed before and after.
template <class T, class F>
__device__ void each_dropped(const DeviceCall<T>& call, const ThreadRows& at, int first_key, T* weights, const F& f) {
  constexpr int blocks = tile / 4 + 1;  // per row; the first may begin before the tile
  const RandomStream stream = call.dropout_stream.now();
  const std::int64_t first_row = (static_cast<std::int64_t>(at.batch) * call.heads + at.head) * call.queries + at.first;
  TALLY_ROLLED
  for (int n = lane_of_warp(); n < warp_rows * blocks; n += 32) {
    const int line = n / blocks;
    const std::int64_t first = static_cast<std::int64_t>(stream.first) +  // element of the stream
                               (first_row + line) * call.keys + first_key;
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

// Number of warps of a block for this number of rows.
template <class T>
int warps_for(std::int64_t rows) {
  return static_cast<int>(std::min<std::int64_t>(most_warps<T>, (rows + warp_rows - 1) / warp_rows));
}
__device__ inline int slice_of_block() { return static_cast<int>(blockIdx.z); }

// Number of causal keys of the tile for this query.
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

// A score modification's scalars for a thread's two rows and their head.
template <class T, class Mod>
struct RowScalars {
  static constexpr int rows = traits_of<Mod>.rows, heads = traits_of<Mod>.heads;
  T scalars[2][static_cast<std::size_t>(rows + heads == 0 ? 1 : rows + heads)];

  __device__ RowScalars(const DeviceCall<T>& call, const ThreadRows& at) {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      if constexpr (rows > 0) {
        const Rows<T> own = call.score_mod.rows.head(at.batch, at.head);
        TALLY_UNROLL
        for (int n = 0; n < rows; ++n) scalars[r][n] = at.valid(r) ? own.at(at.row(r), n) : T{0};
      }
      TALLY_UNROLL
      for (int n = 0; n < heads; ++n) {
        scalars[r][rows + n] = call.score_mod.heads.head(0, at.head).at(n);
      }
    }
  }
  __device__ T at(int r, int n) const { return scalars[r][n]; }
};

// The place in a row's table: the entry, and the fraction beyond it. last: the last entry.
template <class Mod, class T>
__device__ attention::TableIndex<T> table_index(const DeviceCall<T>& call, T place, int last) {
  if constexpr (traits_of<Mod>.knots) {
    const std::int32_t low = attention::knot_before(call.score_mod.knots.data, last + 1, place);
    return {low, place - call.score_mod.knots.data[low]};
  } else {
    return attention::table_index(place, static_cast<T>(last));
  }
}

// A thread's pairs of one tile. on_tensor_cores: running sums are made there. plain: all rows attend to all keys, and
// there are no biases.
template <class T, Family family, class Mod = NoScoreMod, bool on_tensor_cores = false, bool plain = false>
struct Pairs {
  T logits[2][columns] = {};
  // With a score modification: p.s, p.gate_logit and p.sum.
  T scores[2][columns] = {}, gate_logits[2][columns] = {}, positions[2][columns] = {};
  // With a table: the entries, their slopes, and their places unless these are the positions.
  T entries[2][columns] = {}, rises[2][columns] = {}, places[2][columns] = {};
  bool saturated = false;  // every position of the warp is beyond the table
  // Unmasked columns of a row: up to the last (-1: none), and from the first of its window on, or below `always`.
  int last_seen[2], first_seen[2], always;

  __device__ Pairs(const DeviceCall<T>& call, const ThreadRows& at, int first_key)
      : always(static_cast<int>(call.mask.first < first_key + tile ? call.mask.first : first_key + tile) - first_key) {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int last = at.query(r) - first_key;
      last_seen[r] = !at.valid(r) || last < 0 ? -1 : last < tile ? static_cast<int>(last) : tile - 1;
      first_seen[r] = static_cast<int>(call.mask.begin(at.query(r))) - first_key;
    }
  }
  __device__ bool attends(int r, int c) const {
    const int column = tile_column(c);
    return plain || (column <= last_seen[r] && (column >= first_seen[r] || column < always));
  }
  // Whether the row has an unmasked key in the tile. If not, no running sums were saved for it there.
  __device__ bool takes_part(int r) const { return last_seen[r] >= 0 && (last_seen[r] >= first_seen[r] || always > 0); }

  // Turns scores into logits. sums: the running sums along the rows, on entry at the tile's right edge, on return at
  // its left edge. Beyond a table they stay unchanged. scratch: the warp's rows of a tile in shared memory.
  __device__ void finish(const DeviceCall<T>& call, const ThreadRows& at, int first_key,
                         const T (&gate_scores)[2][columns], RunningSum<T> (&sums)[2], T* scratch) {
    if constexpr (has_score_mod<Mod>) {
      take_scores(call, at, first_key, gate_scores, scratch);
      apply_score_mod(call, at, first_key, sums);
      if (!traits_of<Mod>.after_biases) add_biases(call, at, first_key, scratch);
    } else {
      add_biases(call, at, first_key, scratch);
    }
  }

  // The score modification's input for pair (r, c).
  template <bool differentiates, class Scalars>
  __device__ auto pair(const ThreadRows& at, int first_key, const Scalars& scalars, int r, int c) const {
    using R = std::conditional_t<on_tensor_cores, Approximate, T>;
    return attention::PairInputs<R, Mod, differentiates>::of(
        scores[r][c], gate_logits[r][c], positions[r][c], static_cast<T>(at.query(r) - first_key - tile_column(c)),
        [&](std::size_t n) { return scalars.at(r, static_cast<int>(n)); });
  }
  // The same for functions that read p.entry.
  template <bool differentiates, class Scalars>
  __device__ auto pair_of_logit(const ThreadRows& at, int first_key, const Scalars& scalars, int r, int c) const {
    const auto own = pair<differentiates>(at, first_key, scalars, r, c);
    if constexpr (traits_of<Mod>.table) {
      using R = std::conditional_t<on_tensor_cores, Approximate, T>;
      return attention::PairWithEntry<R, Mod, differentiates>(own, entries[r][c], rises[r][c],
                                                              attention::position_of<Mod>(own));
    } else {
      return own;
    }
  }

 private:
  __device__ void add_biases(const DeviceCall<T>& call, const ThreadRows& at, int first_key, T* scratch) {
    if (!plain && call.bias_count > 0) {
      pairs_in_turn(scratch, [&](int r, int c) {
        const bool seen = tile_column(c) <= of_row(r, last_seen[0], last_seen[1]);
        return seen ? bias_of(call, at, r, first_key + tile_column(c)) : T{0};
      });
      each_pair([&](int r, int c) { logits[r][c] += own_pair(scratch, r, c); });
    }
  }

  // Sets p.s and p.gate_logit.
  __device__ void take_scores(const DeviceCall<T>& call, const ThreadRows& at, int first_key,
                              const T (&gate_scores)[2][columns], T* scratch) {
    if (traits_of<Mod>.after_biases) add_biases(call, at, first_key, scratch);
    each_pair([&](int r, int c) {
      scores[r][c] = logits[r][c];
      if (traits_of<Mod>.gate_logit) gate_logits[r][c] = gate_scores[r][c];
    });
  }

  __device__ void apply_score_mod(const DeviceCall<T>& call, const ThreadRows& at, int first_key,
                                  RunningSum<T> (&sums)[2]) {
    const RowScalars<T, Mod> scalars(call, at);
    // Without masks the whole block decides, before the tile.
    if constexpr (traits_of<Mod>.saturates && !(plain && family == Family::paired && traits_of<Mod>.adds_entry)) {
      const T last = static_cast<T>(call.entries - 1);
      bool beyond = (!at.valid(0) || sums[0].sum >= last) && (!at.valid(1) || sums[1].sum >= last);
      if (call.score_mod.gate_key.data != nullptr) {  // which may be NaN where the score is not
        each_pair([&](int r, int c) { beyond = beyond && (!attends(r, c) || gate_logits[r][c] == gate_logits[r][c]); });
      }
      saturated = __all_sync(whole_warp, beyond);
    }
    if constexpr (traits_of<Mod>.sums) {
      if (!saturated) add_up_gates(at, first_key, scalars, sums);
    }
    if constexpr (traits_of<Mod>.own_position) {
      each_pair([&](int r, int c) {
        places[r][c] = attention::position_of<Mod>(pair<false>(at, first_key, scalars, r, c)).value;
      });
      read_tables(call, at, places);
    } else if constexpr (traits_of<Mod>.table) {
      read_tables(call, at, positions);
    }
    each_pair([&](int r, int c) {
      logits[r][c] = attention::logit_of<Mod>(pair_of_logit<false>(at, first_key, scalars, r, c)).value;
    });
  }

  // p.sum: the running sum of gates, without the pair's own gate if traits.sums_own_gate is false.
  __device__ void add_up_gates(const ThreadRows& at, int first_key, const RowScalars<T, Mod>& scalars,
                               RunningSum<T> (&sums)[2]) {
    T own[2][columns] = {};
    each_pair([&](int r, int c) {
      const T gate = attention::gate_of<Mod>(pair<false>(at, first_key, scalars, r, c)).value;
      positions[r][c] = attends(r, c) ? gate : T{0};
      if constexpr (!traits_of<Mod>.sums_own_gate) own[r][c] = positions[r][c];
    });
    if constexpr (on_tensor_cores) {
      sum_on_tensor_cores<true>(positions, sums);
    } else {
      sum_leftward(positions, sums);
    }
    if constexpr (!traits_of<Mod>.sums_own_gate) each_pair([&](int r, int c) { positions[r][c] -= own[r][c]; });
  }

  // A thread's row of x. Beyond the last row it is the last row, whose pairs in this thread are masked.
  __device__ static const T* row_of(const Rows<T>& x, const ThreadRows& at, int r) {
    return &x.head(at.batch, at.head).at(at.valid(r) ? at.row(r) : at.queries - 1);
  }

  // Sets entries and rises at these places.
  __device__ void read_tables(const DeviceCall<T>& call, const ThreadRows& at, T (&where)[2][columns]) {
    const T *const upper = row_of(call.score_mod.table, at, 0), *const lower = row_of(call.score_mod.table, at, 1);
    const std::int64_t step = on_tensor_cores ? 1 : call.score_mod.table.column_step;
    const int end = call.entries - 1;
    if (saturated) {
      const T of_upper = upper[end * step], of_lower = lower[end * step];
      each_pair([&](int r, int c) {
        entries[r][c] = of_row(r, of_upper, of_lower);
        rises[r][c] = 0;
      });
      return;
    }
    if constexpr (on_tensor_cores && !traits_of<Mod>.knots) {
      // Beyond the last entry a place is at the end of the last interval.
      const auto last = static_cast<float>(end), last_low = last - 1;
      each_pair([&](int r, int c) {
        const float given = where[r][c];
        // Gates with operands of their own may be NaN where the score is not.
        const float place = family == Family::gated ? (last < given ? last : given) : std::fmin(given, last);
        // Sums are below 0 only if gates are, or if a pair's gate is subtracted again.
        constexpr bool from_zero = traits_of<Mod>.saturates && traits_of<Mod>.sums_own_gate;
        const float low = std::fmin(from_zero ? given : std::fmax(given, 0.0f), last_low);
        const detail::Element z = detail::element_at(of_row(r, upper, lower), low);
        const float entry = detail::constant_at(z.at), rise = detail::constant_at(z.at + 1) - entry;
        entries[r][c] = attention::interpolate(entry, rise, place - z.floor);
        rises[r][c] = given < last ? rise : 0;
      });
      return;
    }
    const auto read = [&](const T* row, T place_of_pair, T& entry, T& rise) {
      const auto place = table_index<Mod>(call, place_of_pair, end);
      const T* const z = row + (traits_of<Mod>.knots ? 2 : 1) * place.low * step;
      rise = traits_of<Mod>.knots ? z[step] : place.low < end ? z[step] - *z : T{0};
      entry = attention::interpolate(*z, rise, place.w);
    };
    if constexpr (on_tensor_cores) {
      each_pair([&](int r, int c) { read(of_row(r, upper, lower), where[r][c], entries[r][c], rises[r][c]); });
    } else {
      // One row after the other, because the addresses of both would not fit into registers.
      TALLY_ROLLED
      for (int r = 0; r < 2; ++r) {
        const T* const row = of_row(r, upper, lower);
        TALLY_UNROLL
        for (int c = 0; c < columns; ++c) read(row, where[0][c], entries[0][c], rises[0][c]);
        exchange_rows(where);
        exchange_rows(rises);
        exchange_rows(entries);
      }
    }
  }
};

// Saves the running sums at the right edge of a tile for backward, unless it needs none.
template <class T>
__device__ void save_sums(const DeviceCall<T>& call, const ThreadRows& at, int key_tile, RunningSum<T> (&sums)[2]) {
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    const T carried = sums[r].settle();
    if (call.scan_checkpoints == nullptr || !at.leads() || slice_of_block() != 0 || !at.valid(r)) continue;
    call.scan_checkpoints[at.index(call, r) * call.tiles() + key_tile] = carried;
  }
}

// e^(l - shift) for a softmax, or the weight by another rule except softpick.
template <class T>
__device__ T weight_of(Rule rule, const DeviceCall<T>& call, T logit, T shift) {
  return rule == Rule::sigmoid ? math::sigmoid(logit - call.offset) : math::exp(logit - shift);
}

template <class T>
__device__ void copy_pairs(T (&to)[2][columns], const T (&from)[2][columns]) {
  each_pair([&](int r, int c) { to[r][c] = from[r][c]; });
}
// Writes to a warp's rows of a tile in shared memory.
template <class T>
__device__ void store_pairs(T* target, const T (&from)[2][columns]) {
  each_pair([&](int r, int c) { own_pair(target, r, c) = from[r][c]; });
}

// The part of a result that a warp writes: 16 rows of a head, those before end_row, and columns below `width`.
struct ResultTile {
  int batch, head, first_row, end_row, first_column, width;
};

// Writes a thread's values times factor[row] to x.
template <class T, std::size_t C>
__device__ void store_rows(const Rows<T>& x, bool is_bf16, const ResultTile& own, const T (&values)[2][C],
                           const T (&factor)[2] = {1, 1}) {
  if (x.data == nullptr) return;
  // Two neighbouring columns at a time, as a thread has them; `both`: the second is below `width`.
  const auto each_pair_of_columns = [&](const auto& write) {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = own.first_row + tile_row(r);
      TALLY_UNROLL
      for (int c = 0; c < static_cast<int>(C); c += 2) {
        const int column = own.first_column + tile_column(c);
        if (row >= own.end_row || column >= own.width) continue;
        write(x.index(own.batch, own.head, row, column), column + 1 < own.width, factor[r] * values[r][c],
              factor[r] * values[r][c + 1]);
      }
    }
  };
  if constexpr (std::is_same_v<T, float>) {
    if (is_bf16) {
      return each_pair_of_columns([&](std::int64_t n, bool both, float low, float high) {
        const std::uint32_t pair = detail::as_bf16_pair(low, high);
        auto* const to = reinterpret_cast<std::uint16_t*>(x.data) + n;
        if (both && x.column_step == 1 && reinterpret_cast<std::uintptr_t>(to) % sizeof(pair) == 0) {
          *vector_at<std::uint32_t>(to) = pair;
        } else {
          to[0] = static_cast<std::uint16_t>(pair);
          if (both) to[x.column_step] = static_cast<std::uint16_t>(pair >> 16);
        }
      });
    }
  }
  each_pair_of_columns([&](std::int64_t n, bool both, T low, T high) {
    x.data[n] = low;
    if (both) x.data[n + x.column_step] = high;
  });
}
// The rows of a thread, and the columns of a slice.
template <int D, class T, std::size_t C>
__device__ void store_rows(const Rows<T>& x, bool is_bf16, const ThreadRows& at, const T (&values)[2][C], int slice,
                           int width, const T (&factor)[2]) {
  store_rows(x, is_bf16, {at.batch, at.head, at.first, at.queries, slice * D, width}, values, factor);
}

// x: heads of the whole batch; y: blocks of `each` rows or keys; z: slices. A grid's blocks start in the order of x,
// then y, so the longest blocks of all heads start first.
inline dim3 grid_of(std::int64_t heads, std::int64_t count, int each, std::int64_t slices) {
  const std::int64_t blocks = (count + each - 1) / each;
  constexpr std::int64_t most_blocks = 65535;
  check(blocks <= most_blocks, "attention", "the CUDA kernels take texts of up to {} tokens, not {}",
        most_blocks * each, count);
  return {static_cast<unsigned>(heads), static_cast<unsigned>(blocks), static_cast<unsigned>(slices)};
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
