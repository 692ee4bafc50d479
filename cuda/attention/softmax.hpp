// The rule that turns the logits of a row into weights, one tile of keys after the other.
#pragma once

#include "cuda/attention/tile.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// e^(x - shift). approximate: by the special function unit, for weights that are rounded to bf16.
template <bool approximate, class T>
__device__ T exp_from(T x, T shift) {
  if constexpr (approximate) {
    constexpr T log2_e = 1.4426950408889634f;
    return detail::exp2_approximate(x * log2_e - shift * log2_e);
  } else {
    return math::exp(x - shift);
  }
}

// Sums of a thread's two rows under the shifts m. n: the softmax rule's sum of this thread's pairs; picked: the sum of
// their weights, if it differs from n. A sink is one more logit, which precedes all others. approximate: of exp_from.
template <class T, Family family, bool approximate = false>
struct SoftmaxRows {
  static constexpr bool has_mod = family == Family::paired || family == Family::gated;

  const DeviceCall<T>& call;
  const Rule rule;
  const bool shifts;
  T m[2], n[2] = {}, picked[2] = {};

  __device__ SoftmaxRows(const DeviceCall<T>& own, const ThreadRows& at)
      : call(own), rule(rule_of<family>(own)), shifts(rule == Rule::softmax || rule == Rule::softpick) {
    const Rows<T>& sink = call.softmax_rule.sink;
    // Half of the lowest number stays finite in units of ln 2.
    m[0] = m[1] = rule != Rule::softmax  ? T{0}
                  : sink.data != nullptr ? sink.data[at.head * sink.head_step]
                                         : std::numeric_limits<T>::lowest() / 2;
    if (at.leads() && rule == Rule::softpick) n[0] = n[1] = static_cast<T>(attention::softpick_least);
    if (at.leads() && rule == Rule::softmax && sink.data != nullptr) n[0] = n[1] = T{1};
  }

  // Whether weights are exponentials of logits.
  __device__ bool is_exponential() const { return rule == Rule::softmax || rule == Rule::exp; }

  // Replaces logits x + added by weights, 0 unless attends(r, c). o: the rows' sums of values, which get the new
  // shifts. exponential: is_exponential() holds, so code for other rules is left out.
  template <bool exponential = family == Family::plain, std::size_t C, std::size_t O, class Attends>
  __device__ void weigh(T (&x)[2][C], T (&o)[2][O], const Attends& attends, const T (&added)[2] = {0, 0}) {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (shifts) raise_shift(r, x, o, attends, added[r]);
      const auto replace = [&](const auto& weight_of_logit) {
        TALLY_UNROLL
        for (int c = 0; c < static_cast<int>(C); ++c) {
          x[r][c] = attends(r, c) ? weight_of_logit(x[r][c]) : T{0};
          n[r] += x[r][c];
        }
      };
      if (exponential || is_exponential()) {
        replace([shift = m[r] - added[r]](T logit) { return exp_from<approximate>(logit, shift); });
      } else if (rule == Rule::sigmoid) {
        replace([&](T logit) { return math::sigmoid(logit + added[r] - call.offset); });
      } else {
        const T one = math::exp(-m[r]);
        TALLY_UNROLL
        for (int c = 0; c < static_cast<int>(C); ++c) {
          const auto own = attention::softpick(x[r][c] + added[r], m[r], one);
          x[r][c] = attends(r, c) ? own.above : T{0};
          n[r] += attends(r, c) ? own.size : T{0};
          picked[r] += x[r][c];
        }
      }
    }
  }

  // Saves the softmax statistics and writes the output. spent: running sums, the logarithm of the leftover mass if a
  // score modification spends it.
  template <int D, std::size_t O>
  __device__ void finish(const ThreadRows& at, T (&o)[2][O], int slice, RunningSum<T> (&spent)[2]) {
    const Rows<T>& sink = call.softmax_rule.sink;
    T factor[2] = {1, 1};
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      const T sum = sum_of_row(n[r]), of_weights = rule == Rule::softpick ? sum_of_row(picked[r]) : sum;
      if (!at.valid(r)) continue;
      // A row whose keys are all masked has no weights, and its output is 0.
      const T inverse = !shifts ? T{1} : sum > T{0} ? T{1} / sum : T{0};
      T left = rule == Rule::softmax ? T{0} : T{1} - of_weights * inverse;
      if (rule == Rule::softmax && sink.data != nullptr) {
        left = math::exp(sink.data[at.head * sink.head_step] - m[r]) * inverse;
      }
      if (has_mod && call.spends) left = math::exp(-spent[r].settle());
      if (at.leads() && slice == 0) {
        T* const own = call.softmax_statistics + statistics_per_row * at.index(call, r);
        own[0] = m[r];
        own[1] = inverse;
        own[2] = left;
      }
      factor[r] = inverse;
      if (call.softmax_rule.rest.data == nullptr) continue;
      factor[r] = 1;
      TALLY_UNROLL
      for (int c = 0; c < D / row_lanes; ++c) {
        const int column = slice * D + tile_column(c);
        if (column < call.value_width) {
          const T rest = call.softmax_rule.rest.element(call.is_bf16.rest, at.batch, at.head, at.row(r), column);
          o[r][c] = o[r][c] * inverse + left * rest;
        }
      }
    }
    store_rows<D>(call.output, call.is_bf16.output, at, o, slice, call.value_width, factor);
  }

 private:
  template <std::size_t C, std::size_t O, class Attends>
  __device__ void raise_shift(int r, const T (&x)[2][C], T (&o)[2][O], const Attends& attends, T added) {
    T largest = m[r] - added;
    TALLY_UNROLL
    for (int c = 0; c < static_cast<int>(C); ++c) largest = std::fmax(largest, attends(r, c) ? x[r][c] : largest);
    for (int bit = 1; bit < row_lanes; bit *= 2) {
      largest = std::fmax(largest, __shfl_xor_sync(whole_warp, largest, bit));
    }
    largest += added;
    const T factor = exp_from<approximate>(m[r] - largest, T{0});
    n[r] *= factor;
    picked[r] *= factor;
    TALLY_UNROLL
    for (std::size_t c = 0; c < O; ++c) o[r][c] *= factor;
    m[r] = largest;
  }
};

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
