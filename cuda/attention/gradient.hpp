// Fused attention backward, common part of the kernels by rows and by keys: recomputes a tile of pairs and computes the
// gradients of its logits and scores.
#pragma once

#include "cuda/attention/softmax.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Backward reads four numbers of a row for each of its tiles: the softmax statistics m and inverse, d_left = do.r and
// D = do.o - do.r. In a softmax d_left includes D. For bf16 operands m of exponentials includes ln(1 / inverse).
inline constexpr int numbers_per_row = 4;

// These numbers for a thread's rows, and the running sum of their gradient.
template <class T>
struct RowState {
  T m[2], inverse[2] = {}, d_left[2] = {}, d_row[2] = {};
  T run[2] = {};  // sum of d_position over the keys so far, from the left

  // rows: the numbers of the warp's first row, followed by the next rows
  __device__ RowState(const T* rows, const ThreadRows& at) {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      m[r] = std::numeric_limits<T>::infinity();  // no weights
      if (!at.valid(r)) continue;
      T own[numbers_per_row];
      detail::read(own, rows + numbers_per_row * tile_row(r));
      m[r] = own[0];
      inverse[r] = own[1];
      d_left[r] = own[2];
      d_row[r] = own[3];
    }
  }
  __device__ RowState(const DeviceCall<T>& call, const ThreadRows& at)
      : RowState(call.row_states + numbers_per_row * at.index_of(call, at.first), at) {}
};

// Whether queries and keys get a gradient through their scores.
template <Family family, class Mod>
constexpr bool reaches_scores() {
  if constexpr (has_score_mod<Mod>) {
    return traits_of<Mod>.reaches_scores(family == Family::gated);
  } else {
    return true;
  }
}

template <int D, int rows>
constexpr int product_elements(Family family) {
  return (family == Family::gated ? 3 : 2) * (rows + tile) * ld_of<D>;
}
// The three products of rows and keys in backward, in the shared memory from `memory` on, for up to `rows` rows.
template <class T, MatmulPrecision precision, int D, int rows>
struct BackwardProducts {
  HeadProduct<T, D> score, value, gate;

  __device__ BackwardProducts(const DeviceCall<T>& call, int batch, int head, T* memory)
      : score(make(call, call.q, call.k, batch, head, call.width, call.scale, memory)),
        value(make(call, call.d_output, call.v, batch, head, call.value_width, T{1}, memory)),
        gate(make(call, call.score_mod.gate_query, call.score_mod.gate_key, batch, head, call.gate_width, call.scale,
                  memory)) {}

  template <Family family, class F>
  __device__ void each(const F& f) {
    f(score);
    f(value);
    if constexpr (family == Family::gated) f(gate);
  }

 private:
  __device__ static HeadProduct<T, D> make(const DeviceCall<T>& call, const Rows<T>& row, const Rows<T>& key, int batch,
                                           int head, int width, T factor, T*& memory) {
    T* const row_tile = memory;
    T* const key_tile = row_tile + rows * ld_of<D>;
    memory = key_tile + tile * ld_of<D>;
    return {row, key, batch, head, head / call.gqa_group_size, width, factor, row_tile, key_tile};
  }
};

// A tile of pairs in backward: the recomputed forward values, and the gradients of logits, scores and gate scores.
// staged: operands are bf16; plain: as in Pairs.
template <class T, Family family, class Mod = NoScoreMod, bool staged = false, bool plain = false>
struct PairGradients {
  static constexpr bool exponential = family == Family::plain || (plain && family != Family::ruled);

  Pairs<T, family, Mod, staged, plain> pairs;
  T weights[2][columns] = {};  // after dropout; for softpick the slopes of its terms until `finish`
  T d_logits[2][columns] = {}, d_gate_scores[2][columns] = {};
  T d_scores[2][columns] = {};
  T d_entries[2][columns] = {};  // with a score modification

  __device__ PairGradients(const DeviceCall<T>& call, const ThreadRows& at, int key_tile)
      : pairs(call, at, key_tile * tile) {}

  // The steps of a tile. All threads of the block call both products, because they replace parts in shared memory. Only
  // warps whose tile is not fully masked do the steps between and after them. Weights come first, so that the registers
  // they need are free again during the second product. scratch: the warp's rows of a tile in shared memory.
  template <MatmulPrecision precision, int D, int rows>
  __device__ void multiply_scores(const BackwardProducts<T, precision, D, rows>& products, int warp, bool takes_part) {
    products.score.template multiply<precision>(pairs.logits, warp, takes_part);
    if constexpr (family == Family::gated) {
      products.gate.template multiply<precision>(d_gate_scores, warp, takes_part);
    } else {
      copy_pairs(d_gate_scores, pairs.logits);
    }
  }

  __device__ void make_weights(const DeviceCall<T>& call, const ThreadRows& at, int key_tile, const RowState<T>& state,
                               T* scratch) {
    RunningSum<T> sums[2];
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (traits_of<Mod>.sums && pairs.takes_part(r)) {
        sums[r].sum = call.scan_checkpoints[at.index(call, r) * call.tiles() + key_tile];
      }
    }
    pairs.finish(call, at, key_tile * tile, d_gate_scores, sums, scratch);
    const Rule rule = rule_of<family>(call);
    if (staged && (exponential || rule == Rule::softmax || rule == Rule::exp)) {
      each_pair([&](int r, int c) {
        const T weight = exp_from<staged>(pairs.logits[r][c], state.m[r]);
        weights[r][c] = pairs.attends(r, c) ? weight : T{0};
      });
      return;
    }
    T one[2] = {};
    if (rule == Rule::softpick) one[0] = math::exp(-state.m[0]), one[1] = math::exp(-state.m[1]);
    each_pair([&](int r, int c) {
      T weight = 0;
      if (pairs.attends(r, c)) {
        weight = rule == Rule::softpick
                     ? attention::softpick(pairs.logits[r][c], state.m[r], one[r]).slope * state.inverse[r]
                     : weight_of(rule, call, pairs.logits[r][c], state.m[r]) * state.inverse[r];
      }
      weights[r][c] = weight;
    });
  }

  template <MatmulPrecision precision, int D, int rows>
  __device__ void multiply_values(const BackwardProducts<T, precision, D, rows>& products, int warp, bool takes_part) {
    products.value.template multiply<precision>(d_logits, warp, takes_part);  // d_weights so far
  }

  // Advances state.run to the right edge of the tile. adds: whether a score modification's sums of rows are needed.
  __device__ void finish(const DeviceCall<T>& call, const ThreadRows& at, int key_tile, RowState<T>& state, T* scratch,
                         bool adds) {
    const bool drops = !plain && call.drop_below > 0;
    if (drops) {
      __syncwarp();
      each_dropped(call, at, key_tile * tile, scratch, [](T& target, T factor) { target = factor; });
      __syncwarp();
      each_pair([&](int r, int c) { d_logits[r][c] *= own_pair(scratch, r, c); });
    }
    const Rule rule = exponential ? Rule::softmax : rule_of<family>(call);
    each_pair([&](int r, int c) {
      const T d_weight = d_logits[r][c] - state.d_left[r], weight = weights[r][c];
      if (rule == Rule::softmax || rule == Rule::exp) {
        d_logits[r][c] = weight * d_weight;
      } else if (rule == Rule::softpick) {
        d_logits[r][c] = weight * ((weight > T{0} ? d_weight : T{0}) - state.d_row[r]);
        weights[r][c] = weight > T{0} ? weight - math::exp(-state.m[r]) * state.inverse[r] : T{0};
      } else {
        d_logits[r][c] = weight * d_weight * (T{1} - weight);
      }
    });
    if constexpr (has_score_mod<Mod>) {
      score_mod_gradient(call, at, key_tile, state, adds);
      if (family != Family::gated && traits_of<Mod>.gate_logit) {
        each_pair([&](int r, int c) { d_scores[r][c] += d_gate_scores[r][c]; });
      }
    } else {
      copy_pairs(d_scores, d_logits);
    }
    if (drops) each_pair([&](int r, int c) { weights[r][c] *= own_pair(scratch, r, c); });
  }

 private:
  // Sums for a score modification's scalars along a row: of d_logits and of weights, then for each number of both times
  // the logit's derivative by it.
  static constexpr int scalar_sums = 2 + 2 * scalar_count<Mod>;
  using RowSums = T[static_cast<std::size_t>(scalar_sums)];
  using Number = std::conditional_t<staged, Approximate, T>;

  // From gradients of logits, in d_logits; weights: before dropout. As in core/cpu/attention/score_mod_loops.hpp.
  __device__ void score_mod_gradient(const DeviceCall<T>& call, const ThreadRows& at, int key_tile, RowState<T>& state,
                                     bool adds) {
    constexpr ScoreModTraits traits = traits_of<Mod>;
    constexpr int count = scalar_count<Mod>, scalar_input = attention::first_scalar_input;
    const int first_key = key_tile * tile;
    const RowScalars<T, Mod> scalars(call, at);
    RowSums row_sums[2] = {};
    T d_sums[2][columns] = {};
    each_pair([&](int r, int c) {
      d_gate_scores[r][c] = 0;
      const bool seen = pairs.attends(r, c);
      const auto logit = attention::logit_of<Mod>(pairs.template pair_of_logit<true>(at, first_key, scalars, r, c));
      const T dl = seen ? d_logits[r][c] : T{0}, a = seen ? weights[r][c] : T{0};
      const auto take = [&]<int input>(T by) {
        return seen ? static_cast<T>(attention::vjp<input>(Number(by), logit)) : T{0};
      };
      d_scores[r][c] = take.template operator()<attention::input_s>(dl);
      if (traits.gate_logit) d_gate_scores[r][c] = take.template operator()<attention::input_gate_logit>(dl);
      if (traits.sums) d_sums[r][c] = take.template operator()<attention::input_sum>(dl);
      if (traits.table) d_entries[r][c] = take.template operator()<attention::input_entry>(dl);
      row_sums[r][0] += dl;
      row_sums[r][1] += a;
      attention::detail::each_input<(1u << count) - 1>([&]<int n>() {
        row_sums[r][2 + 2 * n] += take.template operator()<scalar_input + n>(dl);
        row_sums[r][3 + 2 * n] += take.template operator()<scalar_input + n>(a);
      });
    });
    if (traits.sums && !pairs.saturated) {
      T own[2][columns];
      copy_pairs(own, d_sums);
      if constexpr (staged) {
        RunningSum<T> sums[2]{{state.run[0]}, {state.run[1]}};
        sum_on_tensor_cores<false>(d_sums, sums);
        state.run[0] = sums[0].value(), state.run[1] = sums[1].value();
      } else {
        sum_rightward(d_sums, state.run);
      }
      each_pair([&](int r, int c) { d_sums[r][c] -= traits.sums_own_gate ? T{0} : own[r][c]; });
      if constexpr (traits_of<Mod>.sums) {
        through_gates(at, first_key, scalars, d_sums, row_sums,
                      [](const auto& pair) { return attention::gate_of<Mod>(pair); });
      }
    }
    if (traits.after_biases) copy_pairs(d_logits, d_scores);  // the gradient of biases
    if (adds) add_row_sums(call, at, row_sums);
  }

  // Propagates gradients of gates to the gates' inputs.
  template <class Scalars, class Gate>
  __device__ void through_gates(const ThreadRows& at, int first_key, const Scalars& scalars,
                                const T (&d_gates)[2][columns], RowSums (&row_sums)[2], const Gate& gate_of_pair) {
    constexpr int count = scalar_count<Mod>, scalar_input = attention::first_scalar_input;
    each_pair([&](int r, int c) {
      const bool seen = pairs.attends(r, c);
      const auto gate = gate_of_pair(pairs.template pair<true>(at, first_key, scalars, r, c));
      const auto take = [&]<int input>() {
        return seen ? static_cast<T>(attention::vjp<input>(Number(d_gates[r][c]), gate)) : T{0};
      };
      d_scores[r][c] += take.template operator()<attention::input_s>();
      if (traits_of<Mod>.gate_logit) d_gate_scores[r][c] += take.template operator()<attention::input_gate_logit>();
      attention::detail::each_input<(1u << count) - 1>(
          [&]<int n>() { row_sums[r][2 + 2 * n] += take.template operator()<scalar_input + n>(); });
    });
  }

  __device__ void add_row_sums(const DeviceCall<T>& call, const ThreadRows& at, const RowSums (&row_sums)[2]) {
    if constexpr (scalar_sums > 2) {
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        double* const sums = call.pair_sums + scalar_sums * at.index(call, at.valid(r) ? r : 0);
        TALLY_UNROLL
        for (int n = 0; n < scalar_sums; ++n) {
          const T sum = sum_of_row(row_sums[r][n]);
          if (at.valid(r) && at.leads()) sums[n] += static_cast<double>(sum);
        }
      }
    }
  }
};

// Computes gradients of a score modification's scalars from the sums over all keys: the row's scalars, and the row's
// part of its head's scalars. Corrects the rounding error of the sum of d_logits (core/cpu/attention/score_mod.hpp).
template <class Mod, class T>
__device__ void close_pair_sums(const DeviceCall<T>& call, const ThreadRows& at) {
  constexpr int rows = traits_of<Mod>.rows, count = scalar_count<Mod>;
  for (int r = 0; r < 2 && count > 0; ++r) {
    if (!at.valid(r) || !at.leads()) continue;
    const std::int64_t index = at.index(call, r);
    double* const sums = call.pair_sums + (2 + 2 * count) * index;
    const double expected = static_cast<double>(call.row_states[numbers_per_row * index + 3]) *
                            static_cast<double>(call.softmax_statistics[statistics_per_row * index + 2]);
    const double excess =
        call.softmax_rule.kind == Rule::softmax && sums[1] != 0 ? (sums[0] - expected) / sums[1] : 0.0;
    for (int n = 0; n < count; ++n) {
      const double sum = sums[2 + 2 * n] - excess * sums[3 + 2 * n];
      sums[2 + 2 * n] = sum;
      if (n < rows && call.d.score_mod.rows.data != nullptr) {
        call.d.score_mod.rows.head(at.batch, at.head).at(at.row(r), n) = static_cast<T>(sum);
      }
    }
  }
}

// Launches of the kernels, each in a separate file.
template <class Mod, class T>
void backward_rows(const AttentionCall& call, const DeviceCall<T>& device);
template <class Mod, class T>
void backward_keys(const AttentionCall& call, const DeviceCall<T>& device);

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
