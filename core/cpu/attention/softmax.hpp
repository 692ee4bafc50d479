// Turns the logits of a row tile into weights, key tile by key tile, in the layout of core/cpu/attention/tile.hpp
// (rules: SoftmaxRuleOperands<View>), and applies dropout.
//
// A row's sums have a shift M of their exponents: e^-M Z and e^-M o. Both are rescaled when M changes. With
// D_i = sum_j a_ij (da_ij - do.r_i) = do.o_i - do.r_i all rules have the same gradient:
//   dl_ij = (n'(l_ij) (da_ij - do.r_i) - m'(l_ij) D_i) / Z_i
#pragma once

#include <cmath>
#include <limits>

#include "core/attention/pair_functions.hpp"
#include "core/cpu/attention/partition.hpp"
#include "core/math/math.hpp"

namespace tally::cpu {

// Advances the shifts m to the largest logits so far; factor = e^(m - m'). Returns whether any factor differs from 1.
template <class T>
TALLY_INLINE bool advance_shifts(const T* score, T* m, T* factor, std::int64_t keys, std::int64_t lanes) {
  alignas(64) T largest[tile_rows];
  std::copy_n(m, lanes, largest);
  for (std::int64_t j = 0; j < keys; ++j) {
    const T* const s = score + j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) largest[i] = s[i] > largest[i] ? s[i] : largest[i];
  }
  T moved = 0;
#pragma omp simd reduction(+ : moved)
  for (std::int64_t i = 0; i < lanes; ++i) {
    factor[i] = math::exp(m[i] - largest[i]);
    moved += largest[i] > m[i] ? T{1} : T{0};
    m[i] = largest[i];
  }
  return moved > 0;
}

// x = f(x, n, i) for the tile's pairs, with n the index in the tile and i the lane; 0 above the diagonal.
template <class T, class F>
TALLY_CLONES void map_pairs(T* x, const RowTile& rows, const KeyTile& keys, const F& f) {
  for (std::int64_t j = 0; j < keys.keys; ++j) {
    const std::int64_t row = j * tile_rows, first = keys.first_lane(rows, j);
    std::fill_n(x + row, first, T{0});
#pragma omp simd
    for (std::int64_t i = first; i < rows.lanes; ++i) x[row + i] = f(x[row + i], row + i, i);
  }
}

// n: sums of e^(l - m).
template <class T>
TALLY_CLONES bool advance_softmax(T* score, T* m, T* n, T* factor, const RowTile& rows, const KeyTile& keys) {
  const std::int64_t lanes = rows.lanes;
  alignas(64) T sum[tile_rows] = {};
  const bool moved = advance_shifts(score, m, factor, keys.keys, lanes);
  for (std::int64_t j = 0; j < keys.keys; ++j) {
    T* const s = score + j * tile_rows;
#pragma omp simd
    for (std::int64_t i = keys.first_lane(rows, j); i < lanes; ++i) {
      s[i] = attention::weight(s[i] - m[i]);
      sum[i] += s[i];
    }
  }
#pragma omp simd
  for (std::int64_t i = 0; i < lanes; ++i) n[i] = n[i] * factor[i] + sum[i];
  return moved;
}

// m >= 0. n: sums of |e^l - 1| e^-m, picked: sums of its positive part, relu(e^l - 1) e^-m.
template <class T>
TALLY_CLONES bool advance_softpick(T* score, T* m, T* n, T* picked, T* factor, std::int64_t keys, std::int64_t lanes) {
  alignas(64) T one[tile_rows], sum[tile_rows] = {}, above[tile_rows] = {};
  const bool moved = advance_shifts(score, m, factor, keys, lanes);
  for (std::int64_t i = 0; i < lanes; ++i) one[i] = math::exp(-m[i]);
  for (std::int64_t j = 0; j < keys; ++j) {
    T* const s = score + j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      const auto own = attention::softpick(s[i], m[i], one[i]);
      sum[i] += own.size;
      above[i] += own.above;
      s[i] = own.above;
    }
  }
#pragma omp simd
  for (std::int64_t i = 0; i < lanes; ++i) {
    n[i] = n[i] * factor[i] + sum[i];
    picked[i] = picked[i] * factor[i] + above[i];
  }
  return moved;
}

template <class T>
TALLY_CLONES void softpick_weights(T* score, T* slope, const T* m, const T* inverse, std::int64_t keys,
                                   std::int64_t lanes) {
  alignas(64) T one[tile_rows];
  for (std::int64_t i = 0; i < lanes; ++i) one[i] = math::exp(-m[i]);
  for (std::int64_t j = 0; j < keys; ++j) {
    T* const s = score + j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      const auto own = attention::softpick(s[i], m[i], one[i]);
      s[i] = own.above * inverse[i];
      slope[j * tile_rows + i] = own.slope * inverse[i];
    }
  }
}

// sum[i] = a_i.x_i for rows ld apart.
template <class T>
TALLY_CLONES void products_of_rows(double* sum, const T* a, const T* x, std::int64_t ld, std::int64_t rows,
                                   std::int64_t width) {
  constexpr std::int64_t lanes = 8;  // fixed, so the order of addition does not depend on the vector width
  for (std::int64_t i = 0; i < rows; ++i) {
    const T *const row_a = a + i * ld, *const row_x = x + i * ld;
    alignas(64) double part[lanes] = {};
    std::int64_t c = 0;
    for (; c + lanes <= width; c += lanes) {
#pragma omp simd
      for (std::int64_t l = 0; l < lanes; ++l) {
        part[l] += static_cast<double>(row_a[c + l]) * static_cast<double>(row_x[c + l]);
      }
    }
    for (; c < width; ++c) part[0] += static_cast<double>(row_a[c]) * static_cast<double>(row_x[c]);
    sum[i] = ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
  }
}

template <class T>
double dot(const T* a, const T* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t c = 0; c < count; ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return sum;
}

// The softmax_rule of one thread, for the current row tile.
template <class T>
class SoftmaxTile {
 public:
  using Kind = SoftmaxRuleOperands<View>::Kind;

  SoftmaxTile(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        kind_(call.softmax_rule.kind),
        output_rows_(
            arena.take<T>(gradients != nullptr ? tile_rows * round_up(call.output.shape[3], vector_lanes<T>) : 0)),
        slope_(arena.take<T>(gradients != nullptr && kind_ == Kind::softpick ? tile_keys * tile_rows : 0)) {}

  // Forward: open_rows, advance for each key tile, close_rows.
  void open_rows(const RowTile& rows) {
    T shift = 0, sum = 0;
    if (kind_ == Kind::softmax) {
      // A sink is one more logit, which precedes all others.
      const View& sink = call_.softmax_rule.sink;
      shift = sink ? sink.as<T>()[rows.head * sink.strides[0]] : std::numeric_limits<T>::lowest();
      sum = sink ? T{1} : T{0};
    } else if (kind_ == Kind::softpick) {
      sum = static_cast<T>(attention::softpick_least);
    }
    std::fill_n(shift_, tile_rows, shift);
    std::fill_n(sum_, tile_rows, sum);
    std::fill_n(picked_, tile_rows, T{0});
  }
  // Replaces the logits in `score` (-inf for masked pairs) by weights under the current shift, except perhaps above the
  // diagonal. If it returns true, the caller multiplies the output so far by rescale().
  bool advance(const RowTile& rows, const KeyTile& keys, T* score) {
    const std::int64_t count = keys.keys, lanes = rows.lanes;
    if (kind_ == Kind::softmax) return advance_softmax(score, shift_, sum_, rescale_, rows, keys);
    if (kind_ == Kind::softpick) return advance_softpick(score, shift_, sum_, picked_, rescale_, count, lanes);
    weights(rows, keys, score);
    if (call_.softmax_rule.rest) add_keys(picked_, score, count, lanes);
    return false;
  }
  const T* rescale() const { return rescale_; }
  // Writes the softmax statistics. taken: if not null, the leftover mass is e^-taken, which is more accurate than from
  // the weights.
  void close_rows(const RowTile& rows, const T* taken) {
    T* const statistics_of_rows = statistics(rows);
    const View& sink = call_.softmax_rule.sink;
    const bool divides = kind_ == Kind::softmax || kind_ == Kind::softpick;
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      // A row whose keys are all masked has no weights, and its output is 0.
      inverse_[i] = !divides ? T{1} : sum_[i] > T{0} ? T{1} / sum_[i] : T{0};
      if (kind_ == Kind::softmax) {
        leftover_[i] = sink ? math::exp(sink.as<T>()[rows.head * sink.strides[0]] - shift_[i]) * inverse_[i] : T{0};
      } else {
        leftover_[i] = taken != nullptr ? math::exp(-taken[i]) : T{1} - picked_[i] * inverse_[i];
      }
      T* const own = statistics_of_rows + statistics_per_row * i;
      own[0] = shift_[i];
      own[1] = inverse_[i];
      own[2] = leftover_[i];
    }
  }

  // Backward: open_gradient with do [rows, ld], and r [rows, ld] or null; then weights and gradient for each key tile.
  // close_gradient adds to d_sink, the sum of the head.
  void open_gradient(const RowTile& rows, const T* d_output, const T* rest, std::int64_t ld, std::int64_t width) {
    // Padding lanes must have weight 0 for any logits. Without this shift e^l may overflow, and 0 * inf is NaN.
    std::fill_n(shift_, tile_rows, std::numeric_limits<T>::max());
    for (T* const of_row : {inverse_, leftover_, d_leftover_, d_row_, delta_, d_logit_sum_})
      std::fill_n(of_row, tile_rows, T{0});
    const T* const saved = statistics(rows);
    double of_outputs[tile_rows];
    pack_rows(output_rows_, ld, call_.output, rows.batch, rows.head, rows.first, rows.rows, width, T{1}, tile_rows);
    products_of_rows(of_outputs, d_output, output_rows_, ld, rows.rows, width);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      shift_[i] = saved[statistics_per_row * i];
      inverse_[i] = saved[statistics_per_row * i + 1];
      leftover_[i] = saved[statistics_per_row * i + 2];
      const double of_output = of_outputs[i];
      const double of_rest = rest != nullptr ? dot(d_output + i * ld, rest + i * ld, width) : 0.0;
      delta_[i] = static_cast<T>(of_output);
      d_leftover_[i] = static_cast<T>(of_rest);
      d_row_[i] = static_cast<T>(of_output - of_rest);
      d_logit_sum_[i] = d_row_[i] * leftover_[i];
    }
  }
  void weights(const RowTile& rows, const KeyTile& keys, T* score) {
    const T *const m = shift_, *const inverse = inverse_;
    const T offset = static_cast<T>(call_.softmax_rule.offset);
    const auto map = [&](const auto& f) { map_pairs(score, rows, keys, f); };
    using Index = std::int64_t;
    switch (kind_) {
      case Kind::softmax:
        return map([=](T l, Index, Index i) TALLY_INLINED { return attention::weight(l - m[i]) * inverse[i]; });
      case Kind::softpick: return softpick_weights(score, slope_, m, inverse, keys.keys, rows.lanes);
      case Kind::sigmoid: return map([=](T l, Index, Index) TALLY_INLINED { return math::sigmoid(l - offset); });
      case Kind::exp: return map([](T l, Index, Index) TALLY_INLINED { return attention::weight(l); });
    }
  }
  // Turns d, the gradient of the weights (0 above the diagonal), into the gradient of the logits.
  void gradient(const RowTile& rows, const KeyTile& keys, T* d, const T* weight) const {
    const T *const slope = slope_, *const d_row = d_row_, *const d_left = d_leftover_;
    const T* const subtracted = kind_ == Kind::softmax ? delta_ : d_left;
    const auto map = [&](const auto& f) { map_pairs(d, rows, keys, f); };
    using Index = std::int64_t;
    switch (kind_) {
      case Kind::softmax:
      case Kind::exp:
        return map([=](T da, Index n, Index i) TALLY_INLINED { return weight[n] * (da - subtracted[i]); });
      case Kind::sigmoid:
        return map([=](T da, Index n, Index i)
                       TALLY_INLINED { return weight[n] * (T{1} - weight[n]) * (da - d_left[i]); });
      case Kind::softpick:
        return map([=](T da, Index n, Index i) TALLY_INLINED {
          const T reaching = da - d_left[i], above = slope[n] > T{0} ? reaching : T{0};
          return slope[n] * (above - d_row[i]);
        });
    }
  }
  // dc = -sum_i e^c / Z_i D_i
  void close_gradient(const RowTile& rows, double* d_sink) const {
    for (std::int64_t i = 0; d_sink != nullptr && i < rows.rows; ++i)
      *d_sink -= static_cast<double>(leftover_[i]) * static_cast<double>(d_row_[i]);
  }

  // For each row: 1 / Z under the shift, and the leftover mass, 1 - the sum of the weights.
  const T* inverse() const { return inverse_; }
  const T* leftover() const { return leftover_; }
  // The sum over keys of the gradients of a row's logits, without their rounding errors; null if it is not known.
  const T* d_logit_sums() const { return kind_ == Kind::softmax ? d_logit_sum_ : nullptr; }
  // A lower bound of every row's shift: weights are at most e^(l - M).
  T least_shift(const RowTile& rows) const { return *std::min_element(shift_, shift_ + rows.rows); }

 private:
  T* statistics(const RowTile& rows) const {
    const std::int64_t row = (rows.batch * call_.heads() + rows.head) * call_.queries() + rows.first;
    return call_.softmax_statistics.as<T>() + statistics_per_row * row;
  }

  const AttentionCall& call_;
  Kind kind_;
  T* output_rows_;  // backward [tile_rows, ld]
  T* slope_;        // backward, softpick: the tile's sign(l) e^l / Z
  alignas(64) T shift_[tile_rows];
  alignas(64) T sum_[tile_rows];      // forward: of m(l) e^-M so far
  alignas(64) T picked_[tile_rows];   // forward, softpick: of n(l) e^-M so far
  alignas(64) T rescale_[tile_rows];  // forward
  alignas(64) T inverse_[tile_rows];
  alignas(64) T leftover_[tile_rows];
  alignas(64) T d_leftover_[tile_rows];   // backward: do.r
  alignas(64) T d_row_[tile_rows];        // backward: D
  alignas(64) T delta_[tile_rows];        // backward: do.o
  alignas(64) T d_logit_sum_[tile_rows];  // backward
};

// Sets the logits of masked pairs to -inf.
template <class T>
TALLY_CLONES void apply_mask(T* score, const RowTile rows, const KeyTile keys) {
  constexpr T none = -std::numeric_limits<T>::infinity();
  for (std::int64_t j = 0; j < keys.keys; ++j) {
    const Lanes unmasked = keys.unmasked_lanes(rows, j);
    T* const row = score + j * tile_rows;
    std::fill_n(row, unmasked.begin, none);
    std::fill(row + unmasked.end, row + tile_rows, none);
  }
}

template <class T>
TALLY_CLONES void scale_lanes(T* x, const T* factor, std::int64_t rows, std::int64_t lanes) {
  for (std::int64_t c = 0; c < rows; ++c) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) x[c * tile_rows + i] *= factor[i];
  }
}

// mask = 1 / (1 - rate) for weights that are kept, else 0. `element` belongs to lane 0 and the tile's first key; rows
// are `row_step` elements apart.
template <class T>
TALLY_CLONES void draw_dropout(T* mask, RandomStream stream, double rate, std::uint64_t element, std::uint64_t row_step,
                               std::int64_t keys, std::int64_t lanes) {
  const T scale = static_cast<T>(1.0 / (1.0 - rate));
  const auto threshold = static_cast<std::int32_t>(std::ceil(rate * 0x1p24));  // as in the kernel `dropout`
  element += stream.first;
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      const std::uint64_t index = element + static_cast<std::uint64_t>(i) * row_step + static_cast<std::uint64_t>(j);
      const PhiloxBlock block = stream.block(index / 4);
      const std::uint32_t first = (index & 1) != 0 ? block[1] : block[0],
                          second = (index & 1) != 0 ? block[3] : block[2];
      const std::uint32_t bits = (index & 2) != 0 ? second : first;
      mask[j * tile_rows + i] = static_cast<std::int32_t>(bits >> 8) >= threshold ? scale : T{0};
    }
  }
}

// y = x mask
template <class T>
TALLY_CLONES void apply_dropout(T* y, const T* x, const T* mask, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) y[j * tile_rows + i] = x[j * tile_rows + i] * mask[j * tile_rows + i];
  }
}

}  // namespace tally::cpu
