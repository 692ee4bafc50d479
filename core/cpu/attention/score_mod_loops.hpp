// A score modification (core/attention/score_mod.hpp) on one tile: a vector holds neighbouring rows and walks along the
// keys.
//
// Forward walks from right to left with the running sums of the gates. Backward evaluates the score modification again
// with derivatives, and walks from left to right with the running sums of d_sum:
//   d_gate_ik = sum_{j<=k} d_sum_ij  (j < k if the sum of a key excludes its own gate)
//
// For a masked key, whole vectors of rows are skipped: their scores stay unchanged, their gradients 0.
//
// Compiled once for each instruction set. To keep instruction sets from being mixed up at link time, no name here is
// visible outside, and all code except the score modification's own is inlined (core/cmake/score_mods.cmake).
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/attention/scalar_score_mod.hpp"
#include "core/cpu/attention/score_mod_lanes.hpp"

namespace tally::cpu {

// The loops of one score modification, for one instruction set.
template <class T>
struct ScoreModLoopsOf {
  // Turns scores into logits. gate_logit: the tile of p.gate_logit. carry: the running sums of gates, [tile_rows].
  void (*add)(const ScoreModTileViews<T>& tile, T* score, const T* gate_logit, T* carry);
  void (*add_and_keep)(const ScoreModTileViews<T>& tile, T* score, const T* gate_logit, T* carry);
  // Turns d, the gradient of the logits, into the gradient of the scores, and d_gate_logit, the tile of p.gate_logit,
  // into its gradient. d_gate_logit is d if p.gate_logit is the score itself. run: sums of d_sum over the keys so far,
  // [tile_rows]. sums: [n][tile_rows], sums over the keys of dl and of the weights. Then, for each number of a row or
  // head, the sums of dl and of the weights times the logit's derivative by that number.
  void (*gradient)(const ScoreModTileViews<T>& tile, T* d, T* d_gate_logit, const T* weight, T* run, double* sums);
};

}  // namespace tally::cpu

namespace tally {

// f64 is for checks and is compiled only for the baseline instruction set.
struct ScoreModLoops {
  cpu::ScoreModLoopsOf<float> f32;
  cpu::ScoreModLoopsOf<double> f64;  // null in the sets for wider vectors
  const ScalarScoreMod* scalar;      // for one pair, in double; also null in those sets
};

namespace cpu {

inline constexpr std::int64_t few_keys = 16;  // number of terms added in T before the sum is added to a double
inline constexpr std::int64_t saturation_interval = 8;  // number of keys between two tests for saturation

// Whether the gate depends on one score only. Its derivative is then saved, which is cheaper than a second evaluation.
template <class V, class Mod>
constexpr bool keeps_gate_slope() {
  if constexpr (attention::traits_of<Mod>.sums) {
    using Gate = decltype(attention::gate_of<Mod>(std::declval<const attention::PairInputs<V, Mod, true>&>()));
    return Gate::count == 1 &&
           (Gate::template has<attention::input_s> || Gate::template has<attention::input_gate_logit>);
  } else {
    return false;
  }
}

template <class V, class Mod, bool keep>
[[gnu::flatten]] void add_pairs(const ScoreModTileViews<Scalar<V>>& tile, Scalar<V>* score, const Scalar<V>* gate_logit,
                                Scalar<V>* carry) {
  using T = Scalar<V>;
  constexpr ScoreModTraits traits = attention::traits_of<Mod>;
  constexpr bool scans = traits.sums, looks_up = traits.table && !traits.knots;
  constexpr std::int64_t step = lanes_of<V>;
  OfRows<V> lost{}, positions{}, last{};
  TablePlaces<V> places;
  std::array<KnotSegments<V>, traits.knots ? vectors_of_rows<V> : 0> segments{};
  std::array<bool, vectors_of_rows<V>> has_saturated{};
  if constexpr (traits.saturates) last = last_entries<V>(tile);
  if (traits.saturates) {
    for (std::size_t n = 0; n < vectors_of_rows<V>; ++n) tile.saturated_keys[n] = 0;
  }
  for (std::int64_t j = tile.keys.keys - 1; j >= 0; --j) {
    if (traits.saturates && (tile.keys.keys - 1 - j) % saturation_interval == 0) {
      for (std::int64_t first = 0; first < tile.rows.lanes; first += step) {
        const auto n = static_cast<std::size_t>(first / step);
        if (has_saturated[n]) continue;
        const V sum = load_vector<V>(carry + first) + lost[n];
        has_saturated[n] = is_saturated(tile, PairLanes<V, Mod>(tile, first), sum);
        if (has_saturated[n]) tile.saturated_keys[n] = j + 1;
      }
    }
    const auto is_passed = [&](std::int64_t first) TALLY_INLINED {
      return traits.saturates && has_saturated[static_cast<std::size_t>(first / step)];
    };
    const Lanes unmasked = unmasked_queries(tile.rows, tile.keys, j);
    const std::int64_t begin = tile.keys.first_lane(tile.rows, j);
    const auto load_gate_logit = [&](std::int64_t cell) TALLY_INLINED -> V {
      return traits.gate_logit ? load_vector<V>(gate_logit + cell) : V{};
    };
    // p.sum
    const auto advance = [&](const PairLanes<V, Mod>& at, std::int64_t first) TALLY_INLINED -> V {
      const std::int64_t cell = j * tile_rows + first;
      V position{};
      if constexpr (scans) {
        constexpr bool keeps_slope = keep && keeps_gate_slope<V, Mod>();
        const auto own = attention::gate_of<Mod>(
            at.template pair<keeps_slope>(load_vector<V>(score + cell), load_gate_logit(cell), V{}, j));
        const auto unmasked_here = at.within(unmasked);
        const V gate = choose(unmasked_here, own.value, V{});
        if constexpr (keeps_slope) {
          store_vector<V>(tile.saved_gate_slope + cell, choose(unmasked_here, own.derivatives.by[0], V{}));
        }
        // Compensated summation: sums of hundreds of gates stay as accurate as their type.
        V& lost_here = lost[static_cast<std::size_t>(first / step)];
        const V before = load_vector<V>(carry + first), next = before + gate;
        if constexpr (!traits.sums_own_gate) position = before + lost_here;
        lost_here += (before - next) + gate;
        store_vector<V>(carry + first, next);
        if constexpr (traits.sums_own_gate) position = next + lost_here;
        if constexpr (keep) store_vector<V>(tile.saved_sum + cell, position);
      }
      return position;
    };
    const auto pair_at = [&](const PairLanes<V, Mod>& at, std::int64_t first, const V& position) TALLY_INLINED {
      const std::int64_t cell = j * tile_rows + first;
      return at.template pair<false>(load_vector<V>(score + cell), load_gate_logit(cell), position, j);
    };
    const auto finish = [&](const PairLanes<V, Mod>& at, std::int64_t first, const auto& pair) TALLY_INLINED {
      const std::int64_t cell = j * tile_rows + first;
      const V logit = attention::logit_of<Mod>(pair).value;
      store_vector<V>(score + cell, choose(at.within(unmasked), logit, splat<V>(-std::numeric_limits<T>::infinity())));
      if constexpr (keep) store_vector<V>(tile.saved_score + cell, pair.s.value);
    };
    for (std::int64_t first = begin; first < tile.rows.lanes; first += step) {
      const PairLanes<V, Mod> at(tile, first);
      if constexpr (traits.saturates) {
        if (is_passed(first)) {
          const V s = load_vector<V>(score + j * tile_rows + first);
          const auto pair = at.template pair<false>(s, V{}, V{}, j);
          const V value = last[static_cast<std::size_t>(first / step)];
          finish(at, first, attention::PairWithEntry<V, Mod, false>(pair, value));
          continue;
        }
      }
      const V position = advance(at, first);
      const auto pair = pair_at(at, first, position);
      if constexpr (looks_up) {
        positions[static_cast<std::size_t>(first / step)] = position;
        places.set(first, at.lane, attention::position_of<Mod>(pair).value, tile);
      } else if constexpr (traits.knots) {
        const V place = attention::position_of<Mod>(pair).value;
        KnotSegments<V>& here = segments[static_cast<std::size_t>(first / step)];
        here.template move<false>(tile, first, place);
        finish(at, first, attention::PairWithEntry<V, Mod, false>(pair, here.entry()));
      } else {
        finish(at, first, pair);
      }
    }
    if constexpr (looks_up) {
      for (std::int64_t first = begin; first < tile.rows.lanes; first += step) {
        if (!is_passed(first)) look_up(places.found + first, tile.values, places.at + first, step);
      }
      for (std::int64_t first = begin; first < tile.rows.lanes; first += step) {
        if (is_passed(first)) continue;
        const PairLanes<V, Mod> at(tile, first);
        const V rise = places.rise(first), value = places.low(first) + places.get(first) * rise;
        const auto pair = pair_at(at, first, positions[static_cast<std::size_t>(first / step)]);
        finish(at, first, attention::PairWithEntry<V, Mod, false>(pair, value));
        if constexpr (keep) {
          const std::int64_t cell = j * tile_rows + first;
          store_vector<V>(tile.saved_slope + cell, rise);
          if constexpr (!traits.adds_entry) store_vector<V>(tile.saved_entry + cell, value);
        }
      }
    }
  }
  for (std::int64_t first = 0; scans && first < tile.rows.lanes; first += step) {
    store_vector<V>(carry + first, load_vector<V>(carry + first) + lost[static_cast<std::size_t>(first / step)]);
  }
}

template <class V>
TALLY_INLINE void add_in_double(double* sum, const V& x) {
  for (std::int64_t l = 0; l < lanes_of<V>; ++l) sum[l] += static_cast<double>(x[l]);
}

template <class V, class Mod>
[[gnu::flatten]] void pair_gradient(const ScoreModTileViews<Scalar<V>>& tile, Scalar<V>* d, Scalar<V>* d_gate_logit,
                                    const Scalar<V>* weight, Scalar<V>* run, double* sums) {
  using attention::vjp;
  constexpr ScoreModTraits traits = attention::traits_of<Mod>;
  constexpr std::size_t count = scalar_count<Mod>;
  [[maybe_unused]] constexpr int s_of = attention::input_s, gate_logit_of = attention::input_gate_logit,
                                 sum_of = attention::input_sum, scalar_of = attention::first_scalar_input;
  constexpr std::int64_t step = lanes_of<V>;
  constexpr bool looks_up = traits.table && !traits.knots;
  const bool own_operands = d_gate_logit != d;
  OfRows<V> last{}, d_last{};
  TablePlaces<V> places;  // with the gradients of the entries
  std::array<KnotSegments<V>, traits.knots ? vectors_of_rows<V> : 0> segments{};
  if constexpr (traits.saturates) last = last_entries<V>(tile);
  for (std::int64_t begin = 0; begin < tile.keys.keys; begin += few_keys) {
    // Over few_keys keys: sums of dl, of the weights, and of both for each number.
    std::array<std::array<V, 2 + 2 * count>, vectors_of_rows<V>> few{};
    const std::int64_t end = begin + few_keys < tile.keys.keys ? begin + few_keys : tile.keys.keys;
    for (std::int64_t j = begin; j < end; ++j) {
      const Lanes unmasked = unmasked_queries(tile.rows, tile.keys, j);
      const std::int64_t lane = tile.keys.first_lane(tile.rows, j);
      const auto is_passed = [&](std::int64_t first)
                                 TALLY_INLINED { return traits.saturates && j < tile.saturated_keys[first / step]; };
      // passed: a constant after inlining
      const auto of_rows = [&](std::int64_t first, bool passed) TALLY_INLINED {
        const PairLanes<V, Mod> at(tile, first);
        const std::int64_t cell = j * tile_rows + first;
        const V dl = load_vector<V>(d + cell), s = load_vector<V>(tile.saved_score + cell);
        const V gate_score = traits.gate_logit ? (own_operands ? load_vector<V>(d_gate_logit + cell) : s) : V{};
        const V sum = traits.sums && !passed ? load_vector<V>(tile.saved_sum + cell) : V{};
        const auto unmasked_here = at.within(unmasked);
        auto& sums_here = few[static_cast<std::size_t>(first / step)];
        // Results of masked lanes may be anything.
        const auto take = [&]<int input>(const V& by, const auto& y)
                              TALLY_INLINED -> V { return choose(unmasked_here, vjp<input>(by, y), V{}); };
        const auto pair = at.template pair<true>(s, gate_score, sum, j);
        const auto logit = [&]() TALLY_INLINED {
          if constexpr (!traits.table) {
            return attention::logit_of<Mod>(pair);
          } else if constexpr (traits.knots) {
            KnotSegments<V>& here = segments[static_cast<std::size_t>(first / step)];
            const auto where = attention::position_of<Mod>(pair);
            here.template move<true>(tile, first, where.value);
            return attention::logit_of<Mod>(
                attention::PairWithEntry<V, Mod, true>(pair, here.entry(), here.rise, where));
          } else {
            const V value = passed              ? last[static_cast<std::size_t>(first / step)]
                            : traits.adds_entry ? V{}
                                                : load_vector<V>(tile.saved_entry + cell);
            const V rise = passed ? V{} : load_vector<V>(tile.saved_slope + cell);
            const auto where = attention::position_of<Mod>(pair);
            if (!passed) places.set(first, at.lane, where.value, tile);
            return attention::logit_of<Mod>(attention::PairWithEntry<V, Mod, true>(pair, value, rise, where));
          }
        }();
        V ds = take.template operator()<s_of>(dl, logit),
          d_gate_score = take.template operator()<gate_logit_of>(dl, logit);
        if constexpr (count > 0) {
          const V a = load_vector<V>(weight + cell);
          sums_here[0] += dl;
          sums_here[1] += a;
          attention::detail::each_input<(1u << count) - 1>([&]<int n>() TALLY_INLINED {
            sums_here[2 + 2 * n] += take.template operator()<scalar_of + n>(dl, logit);
            sums_here[3 + 2 * n] += take.template operator()<scalar_of + n>(a, logit);
          });
        }
        const auto back_through = [&](const V& d_gate, const auto& gate) TALLY_INLINED {
          ds += take.template operator()<s_of>(d_gate, gate);
          d_gate_score += take.template operator()<gate_logit_of>(d_gate, gate);
          attention::detail::each_input<(1u << count) - 1>([&]<int n>() TALLY_INLINED {
            sums_here[2 + 2 * n] += take.template operator()<scalar_of + n>(d_gate, gate);
          });
        };
        if constexpr (traits.table) {
          const V d_entry = take.template operator()<attention::input_entry>(dl, logit);
          if (passed) d_last[static_cast<std::size_t>(first / step)] += d_entry;
          if constexpr (traits.knots) {
            KnotSegments<V>& here = segments[static_cast<std::size_t>(first / step)];
            here.d_value += d_entry;
            here.d_rise += choose(unmasked_here, V(here.beyond * d_entry), V{});
          }
          if (looks_up && !passed) {
            places.put(first, d_entry, choose(unmasked_here, V(places.get(first) * d_entry), V{}));
          }
        }
        if constexpr (traits.sums) {
          if (!passed) {
            const V d_sum = take.template operator()<sum_of>(dl, logit);
            const V before = load_vector<V>(run + first);
            const V after = before + d_sum, d_gate = traits.sums_own_gate ? after : before;
            store_vector<V>(run + first, after);
            if constexpr (keeps_gate_slope<V, Mod>()) {
              using Gate = decltype(attention::gate_of<Mod>(at.template pair<true>(s, gate_score, V{}, j)));
              (Gate::template has<s_of> ? ds : d_gate_score) += d_gate * load_vector<V>(tile.saved_gate_slope + cell);
            } else {
              back_through(d_gate, attention::gate_of<Mod>(at.template pair<true>(s, gate_score, V{}, j)));
            }
          }
        }
        if (traits.gate_logit && own_operands) store_vector<V>(d_gate_logit + cell, d_gate_score);
        if (traits.gate_logit && !own_operands) ds += d_gate_score;
        store_vector<V>(d + cell, ds);
      };
      for (std::int64_t first = lane; first < tile.rows.lanes; first += step) {
        if (is_passed(first)) {
          of_rows(first, true);
        } else {
          of_rows(first, false);
        }
      }
      for (std::int64_t first = lane; looks_up && first < tile.rows.lanes; first += step) {
        if (!is_passed(first)) add_at(tile.d_table, places.at + first, places.added + first, step);
      }
    }
    for (std::size_t n = 0; count > 0 && n < 2 + 2 * count; ++n) {
      double* const target = sums + static_cast<std::int64_t>(n) * tile_rows;
      for (std::int64_t first = 0; first < tile.rows.lanes; first += step) {
        add_in_double(target + first, few[static_cast<std::size_t>(first / step)][n]);
      }
    }
  }
  if constexpr (traits.knots) {
    for (std::int64_t first = 0; first < tile.rows.lanes; first += step) {
      segments[static_cast<std::size_t>(first / step)].close(tile, first);
    }
  }
  for (std::int64_t i = 0; traits.saturates && i < tile.rows.lanes; ++i) {
    if (tile.saturated_keys[i / step] == 0) continue;
    tile.d_table[i * tile.ld + tile.entries - 1].low += d_last[static_cast<std::size_t>(i / step)][i % step];
  }
}

template <class T, int bytes, class Mod>
constexpr ScoreModLoopsOf<T> score_mod_loops_of() {
  using V = Vector<T, bytes>;
  return {&add_pairs<V, Mod, false>, &add_pairs<V, Mod, true>, &pair_gradient<V, Mod>};
}
// bytes: the width of a vector.
template <int bytes, class Mod>
constexpr ScoreModLoops score_mod_loops() {
  if constexpr (bytes == 16) {
    return {score_mod_loops_of<float, bytes, Mod>(), score_mod_loops_of<double, bytes, Mod>(),
            &attention::scalar_score_mod<Mod>};
  } else {
    return {score_mod_loops_of<float, bytes, Mod>(), {}, nullptr};
  }
}

}  // namespace cpu
}  // namespace tally
