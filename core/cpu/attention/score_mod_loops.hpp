// A pair policy (core/attention/pair.hpp) on one tile: a vector holds neighbouring rows and walks along the keys.
//
// Forward walks from right to left with the running sums of the gates. Backward evaluates the policy again with
// derivatives, and walks from left to right with the running sums of d_sum:
//   d_gate_ik = sum_{j<=k} d_sum_ij  (j < k if the sum of a key excludes its own gate)
//
// For a masked key, whole vectors of rows are skipped: their scores stay unchanged, their gradients 0.
//
// Compiled once for each instruction set. To keep instruction sets from being mixed up at link time, no name here is
// visible outside, and all code except the policy's own is inlined (core/cmake/pairs.cmake).
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/attention/scalar_score_mod.hpp"
#include "core/cpu/attention/score_mod_lanes.hpp"

namespace tally::cpu {

// The loops of one policy, for one instruction set.
template <class T>
struct PairLoopsOf {
  // Turns scores into logits. other: p.other's tile. carry: the running sums of gates, [tile_rows].
  void (*add)(const PairTileViews<T>& tile, T* score, const T* other, T* carry);
  void (*add_and_keep)(const PairTileViews<T>& tile, T* score, const T* other, T* carry);
  // Turns d, the gradient of the logits, into the gradient of the scores, and d_other, p.other's tile, into its
  // gradient. d_other is d if p.other is the score itself. run: sums of d_sum over the keys so far, [tile_rows]. sums:
  // [n][tile_rows], sums over the keys of dl and of the weights. Then, for each number of a row or head, the sums of dl
  // and of the weights times the logit's derivative by that number.
  void (*gradient)(const PairTileViews<T>& tile, T* d, T* d_other, const T* weight, T* run, double* sums);
};

}  // namespace tally::cpu

namespace tally {

// f64 is for checks and is compiled only for the baseline instruction set.
struct PairLoops {
  cpu::PairLoopsOf<float> f32;
  cpu::PairLoopsOf<double> f64;  // null in the sets for wider vectors
  const ScalarScoreMod* scalar;  // for one pair, in double; also null in those sets
};

namespace cpu {

inline constexpr std::int64_t few_keys = 16;      // number of terms added in T before the sum is added to a double
inline constexpr std::int64_t settling_keys = 8;  // number of keys between two tests for saturation

// Whether the gate depends on one score only. Its derivative is then saved, which is cheaper than a second evaluation.
template <class V, class Policy>
constexpr bool keeps_gate_slope() {
  if constexpr (Policy::needs.scan) {
    using Gate = decltype(attention::gate_of<Policy>(std::declval<const attention::PairIn<V, Policy, true, false>&>()));
    return Gate::count == 1 && (Gate::template has<attention::input_s> || Gate::template has<attention::input_other>);
  } else {
    return false;
  }
}

template <class V, class Policy, bool keep>
[[gnu::flatten]] void add_pairs(const PairTileViews<Scalar<V>>& tile, Scalar<V>* score, const Scalar<V>* other,
                                Scalar<V>* carry) {
  using T = Scalar<V>;
  constexpr PairNeeds needs = Policy::needs;
  constexpr bool scans = needs.scan, looks_up = needs.table && !needs.knots;
  constexpr std::int64_t step = lanes_of<V>;
  OfRows<V> lost{}, positions{}, last{};
  TablePlaces<V> places;
  std::array<KnotSegments<V>, needs.knots ? vectors_of_rows<V> : 0> segments{};
  std::array<bool, vectors_of_rows<V>> has_settled{};
  if constexpr (needs.settles) last = last_entries<V>(tile);
  if (needs.settles && tile.settled_keys != nullptr) {
    for (std::size_t n = 0; n < vectors_of_rows<V>; ++n) tile.settled_keys[n] = 0;
  }
  set_diagonals<V, Policy, keep>(tile);
  for (std::int64_t j = tile.keys.keys - 1; j >= 0; --j) {
    if (needs.settles && tile.settled_keys != nullptr && (tile.keys.keys - 1 - j) % settling_keys == 0) {
      for (std::int64_t first = 0; first < tile.rows.lanes; first += step) {
        const auto n = static_cast<std::size_t>(first / step);
        if (has_settled[n]) continue;
        const V sum = load_vector<V>(carry + first) + lost[n];
        has_settled[n] = is_settled(tile, PairLanes<V, Policy>(tile, first), sum);
        if (has_settled[n]) tile.settled_keys[n] = j + 1;
      }
    }
    const auto is_passed = [&](std::int64_t first) TALLY_INLINED {
      return needs.settles && has_settled[static_cast<std::size_t>(first / step)];
    };
    const Lanes seeing = queries_seeing(tile.rows, tile.keys, j);
    const std::int64_t begin = tile.keys.first_lane(tile.rows, j);
    const auto load_other = [&](std::int64_t cell)
                                TALLY_INLINED -> V { return needs.other ? load_vector<V>(other + cell) : V{}; };
    // p.sum
    const auto advance = [&](const PairLanes<V, Policy>& at, std::int64_t first) TALLY_INLINED -> V {
      const std::int64_t cell = j * tile_rows + first;
      V position{};
      if constexpr (scans) {
        constexpr bool keeps_slope = keep && keeps_gate_slope<V, Policy>();
        const auto own = attention::gate_of<Policy>(
            at.template pair<keeps_slope, false>(load_vector<V>(score + cell), load_other(cell), V{}, j));
        const auto seen = at.seen(seeing);
        const V gate = choose(seen, own.value, V{});
        if constexpr (keeps_slope) {
          store_vector<V>(tile.kept_gate_slope + cell, choose(seen, own.derivatives.by[0], V{}));
        }
        // Compensated summation: sums of hundreds of gates stay as accurate as their type.
        V& lost_here = lost[static_cast<std::size_t>(first / step)];
        const V before = load_vector<V>(carry + first), next = before + gate;
        if constexpr (!needs.own) position = before + lost_here;
        lost_here += (before - next) + gate;
        store_vector<V>(carry + first, next);
        if constexpr (needs.own) position = next + lost_here;
        if constexpr (keep) store_vector<V>(tile.kept_sum + cell, position);
      }
      return position;
    };
    const auto pair_at = [&](const PairLanes<V, Policy>& at, std::int64_t first, const V& position) TALLY_INLINED {
      const std::int64_t cell = j * tile_rows + first;
      return at.template pair<false, true>(load_vector<V>(score + cell), load_other(cell), position, j);
    };
    const auto finish = [&](const PairLanes<V, Policy>& at, std::int64_t first, const auto& pair) TALLY_INLINED {
      const std::int64_t cell = j * tile_rows + first;
      const V logit = attention::logit_of<Policy>(pair).value;
      store_vector<V>(score + cell, choose(at.seen(seeing), logit, splat<V>(-std::numeric_limits<T>::infinity())));
      if constexpr (keep) store_vector<V>(tile.kept_score + cell, pair.s.value);
    };
    for (std::int64_t first = begin; first < tile.rows.lanes; first += step) {
      const PairLanes<V, Policy> at(tile, first);
      if constexpr (needs.settles) {
        if (is_passed(first)) {
          const V s = load_vector<V>(score + j * tile_rows + first);
          const auto pair = at.template pair<false, true>(s, V{}, V{}, j);
          const V value = last[static_cast<std::size_t>(first / step)];
          finish(at, first, attention::PairWithEntry<V, Policy, false>(pair, value));
          continue;
        }
      }
      const V position = advance(at, first);
      const auto pair = pair_at(at, first, position);
      if constexpr (looks_up) {
        positions[static_cast<std::size_t>(first / step)] = position;
        places.set(first, at.lane, attention::place_of(pair).value, tile);
      } else if constexpr (needs.knots) {
        const V place = attention::place_of(pair).value;
        KnotSegments<V>& here = segments[static_cast<std::size_t>(first / step)];
        here.template move<false>(tile, first, place);
        finish(at, first, attention::PairWithEntry<V, Policy, false>(pair, here.entry()));
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
        const PairLanes<V, Policy> at(tile, first);
        const V rise = places.rise(first), value = places.low(first) + places.get(first) * rise;
        const auto pair = pair_at(at, first, positions[static_cast<std::size_t>(first / step)]);
        finish(at, first, attention::PairWithEntry<V, Policy, false>(pair, value));
        if constexpr (keep) {
          const std::int64_t cell = j * tile_rows + first;
          store_vector<V>(tile.kept_rise + cell, rise);
          if constexpr (!needs.adds_entry) store_vector<V>(tile.kept_entry + cell, value);
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

template <class V, class Policy>
[[gnu::flatten]] void pair_gradient(const PairTileViews<Scalar<V>>& tile, Scalar<V>* d, Scalar<V>* d_other,
                                    const Scalar<V>* weight, Scalar<V>* run, double* sums) {
  using attention::pulled;
  constexpr PairNeeds needs = Policy::needs;
  constexpr std::size_t count = pair_numbers<Policy>;
  [[maybe_unused]] constexpr int s_of = attention::input_s, other_of = attention::input_other,
                                 sum_of = attention::input_sum, number_of = attention::first_row_input;
  constexpr std::int64_t step = lanes_of<V>;
  constexpr bool looks_up = needs.table && !needs.knots;
  const bool own_operands = d_other != d;
  OfRows<V> last{}, d_last{};
  TablePlaces<V> places;  // with the gradients of the entries
  std::array<KnotSegments<V>, needs.knots ? vectors_of_rows<V> : 0> segments{};
  if constexpr (needs.settles) last = last_entries<V>(tile);
  set_diagonals<V, Policy, true>(tile);
  for (std::int64_t begin = 0; begin < tile.keys.keys; begin += few_keys) {
    // Over few_keys keys: sums of dl, of the weights, and of both for each number.
    std::array<std::array<V, 2 + 2 * count>, vectors_of_rows<V>> few{};
    const std::int64_t end = begin + few_keys < tile.keys.keys ? begin + few_keys : tile.keys.keys;
    for (std::int64_t j = begin; j < end; ++j) {
      const Lanes seeing = queries_seeing(tile.rows, tile.keys, j);
      const std::int64_t lane = tile.keys.first_lane(tile.rows, j);
      const auto is_passed = [&](std::int64_t first) TALLY_INLINED {
        return needs.settles && tile.settled_keys != nullptr && j < tile.settled_keys[first / step];
      };
      // passed: a constant after inlining
      const auto of_rows = [&](std::int64_t first, bool passed) TALLY_INLINED {
        const PairLanes<V, Policy> at(tile, first);
        const std::int64_t cell = j * tile_rows + first;
        const V dl = load_vector<V>(d + cell), s = load_vector<V>(tile.kept_score + cell);
        const V gate_score = needs.other ? (own_operands ? load_vector<V>(d_other + cell) : s) : V{};
        const V sum = needs.scan && !passed ? load_vector<V>(tile.kept_sum + cell) : V{};
        const auto seen = at.seen(seeing);
        auto& sums_here = few[static_cast<std::size_t>(first / step)];
        // Results of masked lanes may be anything.
        const auto take = [&]<int input>(const V& by, const auto& y)
                              TALLY_INLINED -> V { return choose(seen, pulled<input>(by, y), V{}); };
        const auto pair = at.template pair<true, true>(s, gate_score, sum, j);
        const auto logit = [&]() TALLY_INLINED {
          if constexpr (!needs.table) {
            return attention::logit_of<Policy>(pair);
          } else if constexpr (needs.knots) {
            KnotSegments<V>& here = segments[static_cast<std::size_t>(first / step)];
            const auto where = attention::place_of(pair);
            here.template move<true>(tile, first, where.value);
            return attention::logit_of<Policy>(
                attention::PairWithEntry<V, Policy, true>(pair, here.entry(), here.rise, where));
          } else {
            const V value = passed             ? last[static_cast<std::size_t>(first / step)]
                            : needs.adds_entry ? V{}
                                               : load_vector<V>(tile.kept_entry + cell);
            const V rise = passed ? V{} : load_vector<V>(tile.kept_rise + cell);
            const auto where = attention::place_of(pair);
            if (!passed) places.set(first, at.lane, where.value, tile);
            return attention::logit_of<Policy>(attention::PairWithEntry<V, Policy, true>(pair, value, rise, where));
          }
        }();
        static_assert(!needs.settles || !std::remove_cvref_t<decltype(logit)>::template has<other_of>,
                      "with needs.settles p.other is for gates alone");
        V ds = take.template operator()<s_of>(dl, logit), d_gate_score = take.template operator()<other_of>(dl, logit);
        if constexpr (count > 0) {
          const V a = load_vector<V>(weight + cell);
          sums_here[0] += dl;
          sums_here[1] += a;
          attention::detail::each_input<(1u << count) - 1>([&]<int n>() TALLY_INLINED {
            sums_here[2 + 2 * n] += take.template operator()<number_of + n>(dl, logit);
            sums_here[3 + 2 * n] += take.template operator()<number_of + n>(a, logit);
          });
        }
        const auto back_through = [&](const V& d_gate, const auto& gate) TALLY_INLINED {
          ds += take.template operator()<s_of>(d_gate, gate);
          d_gate_score += take.template operator()<other_of>(d_gate, gate);
          attention::detail::each_input<(1u << count) - 1>([&]<int n>() TALLY_INLINED {
            sums_here[2 + 2 * n] += take.template operator()<number_of + n>(d_gate, gate);
          });
        };
        if constexpr (needs.table) {
          const V d_entry = take.template operator()<attention::input_entry>(dl, logit);
          if (passed) d_last[static_cast<std::size_t>(first / step)] += d_entry;
          if constexpr (needs.knots) {
            KnotSegments<V>& here = segments[static_cast<std::size_t>(first / step)];
            here.d_value += d_entry;
            here.d_rise += choose(seen, V(here.beyond * d_entry), V{});
          }
          if (looks_up && !passed) {
            places.put(first, d_entry, choose(seen, V(places.get(first) * d_entry), V{}));
          }
        }
        if constexpr (needs.scan) {
          if (!passed) {
            const V d_sum = take.template operator()<sum_of>(dl, logit);
            const V before = load_vector<V>(run + first);
            const V after = before + d_sum, d_gate = needs.own ? after : before;
            store_vector<V>(run + first, after);
            if constexpr (keeps_gate_slope<V, Policy>()) {
              using Gate = decltype(attention::gate_of<Policy>(at.template pair<true, false>(s, gate_score, V{}, j)));
              (Gate::template has<s_of> ? ds : d_gate_score) += d_gate * load_vector<V>(tile.kept_gate_slope + cell);
            } else {
              back_through(d_gate, attention::gate_of<Policy>(at.template pair<true, false>(s, gate_score, V{}, j)));
            }
          }
        }
        if (needs.other && own_operands) store_vector<V>(d_other + cell, d_gate_score);
        if (needs.other && !own_operands) ds += d_gate_score;
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
  if constexpr (needs.knots) {
    for (std::int64_t first = 0; first < tile.rows.lanes; first += step) {
      segments[static_cast<std::size_t>(first / step)].close(tile, first);
    }
  }
  for (std::int64_t i = 0; needs.settles && tile.settled_keys != nullptr && i < tile.rows.lanes; ++i) {
    if (tile.settled_keys[i / step] == 0) continue;
    tile.d_table[i * tile.ld + tile.entries - 1].low += d_last[static_cast<std::size_t>(i / step)][i % step];
  }
}

template <class T, int bytes, class Policy>
constexpr PairLoopsOf<T> pair_loops_of() {
  using V = Vector<T, bytes>;
  return {&add_pairs<V, Policy, false>, &add_pairs<V, Policy, true>, &pair_gradient<V, Policy>};
}
// bytes: the width of a vector.
template <int bytes, class Policy>
constexpr PairLoops pair_loops() {
  if constexpr (bytes == 16) {
    return {pair_loops_of<float, bytes, Policy>(), pair_loops_of<double, bytes, Policy>(),
            &attention::scalar_score_mod<Policy>};
  } else {
    return {pair_loops_of<float, bytes, Policy>(), {}, nullptr};
  }
}

}  // namespace cpu
}  // namespace tally
