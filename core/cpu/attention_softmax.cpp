#include "core/cpu/attention_softmax.hpp"

#include <cmath>

#include "core/math.hpp"

namespace tally::cpu {

template <class T>
TALLY_CLONES void hide(T* score, T value, const RowTile rows, const KeyTile keys) {
  for (std::int64_t j = 0; j < keys.keys; ++j) std::fill_n(score + j * tile_rows, keys.hidden(rows, j), value);
}

template <class T>
TALLY_CLONES bool advance_softmax(T* score, T* m, T* n, T* factor, std::int64_t keys, std::int64_t lanes) {
  alignas(64) T largest[tile_rows], sum[tile_rows];
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
    sum[i] = 0;
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    T* const s = score + j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      s[i] = math::exp(s[i] - largest[i]);
      sum[i] += s[i];
    }
  }
#pragma omp simd
  for (std::int64_t i = 0; i < lanes; ++i) n[i] = n[i] * factor[i] + sum[i];
  return moved > 0;
}

template <class T>
TALLY_CLONES void scale_lanes(T* x, const T* factor, std::int64_t rows, std::int64_t lanes) {
  for (std::int64_t c = 0; c < rows; ++c) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) x[c * tile_rows + i] *= factor[i];
  }
}

template <class T>
TALLY_CLONES void softmax_weights(T* score, const T* m, const T* inverse, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
    T* const s = score + j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) s[i] = math::exp(s[i] - m[i]) * inverse[i];
  }
}

template <class T>
TALLY_CLONES void softmax_gradient(T* d, const T* weight, const T* delta, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      d[j * tile_rows + i] = weight[j * tile_rows + i] * (d[j * tile_rows + i] - delta[i]);
    }
  }
}

template <class T>
TALLY_CLONES void draw_dropout(T* mask, RandomStream stream, double rate, std::uint64_t element, std::uint64_t row_step,
                               std::int64_t keys, std::int64_t lanes) {
  const T kept = static_cast<T>(1.0 / (1.0 - rate));
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
      mask[j * tile_rows + i] = static_cast<std::int32_t>(bits >> 8) >= threshold ? kept : T{0};
    }
  }
}

template <class T>
TALLY_CLONES void apply_dropout(T* y, const T* x, const T* mask, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) y[j * tile_rows + i] = x[j * tile_rows + i] * mask[j * tile_rows + i];
  }
}

#define TALLY_INSTANTIATE(T)                                                                                      \
  template void hide(T*, T, RowTile, KeyTile);                                                                    \
  template bool advance_softmax(T*, T*, T*, T*, std::int64_t, std::int64_t);                                      \
  template void scale_lanes(T*, const T*, std::int64_t, std::int64_t);                                            \
  template void softmax_weights(T*, const T*, const T*, std::int64_t, std::int64_t);                              \
  template void softmax_gradient(T*, const T*, const T*, std::int64_t, std::int64_t);                             \
  template void draw_dropout(T*, RandomStream, double, std::uint64_t, std::uint64_t, std::int64_t, std::int64_t); \
  template void apply_dropout(T*, const T*, const T*, std::int64_t, std::int64_t);
TALLY_INSTANTIATE(float)
TALLY_INSTANTIATE(double)
#undef TALLY_INSTANTIATE

}  // namespace tally::cpu
