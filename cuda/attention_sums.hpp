// Tiled attention backward: sums of a row's gradients times positions, for networks of positions, which
// enlarge what rounding made of them.
//
// dl = a (da - do.o) of a softmax adds up to 0 in every row, or with a sink to what the sink leaves over, but for what
// rounding made of do.o, which is proportional to the weights: at its end a row is freed of it, as in
// core/cpu/attention_sums.hpp.
#pragma once

#include "cuda/attention_tile.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

inline constexpr int few_keys = 16;  // as many terms are added without double

// Over a row's keys: of d_logits and of weights, and of both times the position (a network's: where a unit is not
// zero).
struct PositionSums {
  double d = 0, d_p = 0, a = 0, a_p = 0;

  // The sum of x dl of the row whose sums `row` are, from that as rounded and the sum of x a. excess: of dl over what
  // it should add up to.
  __device__ static double balanced(const double* row, double excess, double of_d, double of_a) {
    return row[2] == 0 ? of_d : of_d - excess / row[2] * of_a;
  }
};

// Those of the keys up to `end` that `counts`, a function of the position, has as 1 and not as 0.
template <class T, class F>
__device__ PositionSums position_sums(const T* d_logits, const T* weights, const T* positions, int end, F&& counts) {
  PositionSums sums;
  for (int first = 0; first < end; first += few_keys) {
    T d = 0, d_p = 0, a = 0, a_p = 0;
    for (int j = first; j < end && j < first + few_keys; ++j) {
      const T position = positions[j], on = counts(position), d_on = on * d_logits[j], a_on = on * weights[j];
      d += d_on;
      d_p += d_on * position;
      a += a_on;
      a_p += a_on * position;
    }
    sums.d += static_cast<double>(d);
    sums.d_p += static_cast<double>(d_p);
    sums.a += static_cast<double>(a);
    sums.a_p += static_cast<double>(a_p);
  }
  return sums;
}

// A lane takes one of the warp's rows.
template <class T>
__device__ void add_to_row_sums(const DeviceCall<T>& call, const ThreadRows& at, int first_key, const T* d_logits,
                                const T* weights, const T* positions) {
  const int line = lane_of_warp(), begin = line * pair_ld;
  const int row = at.first + line;
  if (line >= warp_rows || row >= at.queries) return;
  const int end = seen_of_tile(at.before + row, first_key);
  double* const sums = call.row_sums + row_sum_count * at.index_of(call, row);
  if (!call.balances) {
    double sum = 0;
    for (int j = 0; j < end; ++j) sum += static_cast<double>(d_logits[begin + j]);
    sums[0] += sum;
    return;
  }
  const PositionSums own =
      position_sums(d_logits + begin, weights + begin, positions + begin, end, [](T) { return T{1}; });
  sums[0] += own.d;
  sums[1] += own.d_p;
  sums[2] += own.a;
  sums[3] += own.a_p;
}

// Hidden layer: a lane takes every 32nd unit, for each of the warp's rows.
template <class T>
__device__ void add_to_hidden_layer(const DeviceCall<T>& call, const ThreadRows& at, int first_key, const T* d_logits,
                                    const T* weights, const T* positions) {
  for (int line = 0; line < warp_rows && at.first + line < at.queries; ++line) {
    const int row = at.first + line;
    const int end = seen_of_tile(at.before + row, first_key), begin = line * pair_ld;
    double* const sums = call.unit_sums + row_sum_count * call.entries * at.index_of(call, row);
    for (int n = lane_of_warp(); n < call.entries; n += 32) {
      const T w = call.weight[n * call.weight_step], b = call.bias[n * call.bias_step];
      const PositionSums own =
          position_sums(d_logits + begin, weights + begin, positions + begin, end,
                        [&](T position) { return attention::hidden_slope(attention::hidden(w, b, position)); });
      sums[n] += own.d;
      sums[call.entries + n] += own.d_p;
      sums[2 * call.entries + n] += own.a;
      sums[3 * call.entries + n] += own.a_p;
    }
  }
}

// What sums over all keys make of a network: the row's own part of d_u, its part of what all rows share.
// Where a unit is not zero it is w p + b: d_u = w sum_j dl p + b sum_j dl, d_w = u sum_j dl p, d_b = u sum_j dl.
template <class T>
__device__ void close_row_sums(const DeviceCall<T>& call, const ThreadRows& at) {
  __syncwarp();  // a lane has added what others read
  for (int line = 0; line < warp_rows && at.first + line < at.queries; ++line) {
    const int row = at.first + line;
    const std::int64_t index = at.index_of(call, row);
    double* const row_sums = call.row_sums + row_sum_count * index;
    const double expected = static_cast<double>(call.row_gradients[2 * index + 1]) *
                            static_cast<double>(call.row_statistics[statistics_per_row * index + 2]);
    const double excess = call.rule == Rule::softmax ? row_sums[0] - expected : 0.0;
    double* const sums = call.unit_sums + row_sum_count * call.entries * at.index_of(call, row);
    for (int n = lane_of_warp(); n < call.entries; n += 32) {
      const Rows<T> values = call.values.head(at.batch, at.head), d_values = call.d_values.head(at.batch, at.head);
      const double d = PositionSums::balanced(row_sums, excess, sums[n], sums[2 * call.entries + n]);
      const double d_p = PositionSums::balanced(row_sums, excess, sums[call.entries + n], sums[3 * call.entries + n]);
      const auto w = static_cast<double>(call.weight[n * call.weight_step]);
      const auto b = static_cast<double>(call.bias[n * call.bias_step]), u = static_cast<double>(values.at(row, n));
      if (call.d_values.data != nullptr) d_values.at(row, n) = static_cast<T>(w * d_p + b * d);
      sums[n] = u * d_p;
      sums[call.entries + n] = u * d;
    }
  }
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
