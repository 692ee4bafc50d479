// Rotation of pairs (RoPE, Su et al. 2021): of the first r dims of row t the pairs (a, b) become
// (a cos - b sin, a sin + b cos) by the angles of row t; inverse, and adjoint, by the negative angles.
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

// y may be x; sign -1 rotates backwards. X: T, or bf16 if T is f32.
template <class T, class X>
TALLY_CLONES void rotate_row(X* y, const X* x, const T* cosine, const T* sine, std::int64_t pairs, bool interleaved,
                             T sign) {
  const auto rotate = [&](std::int64_t i, std::int64_t first, std::int64_t second) TALLY_INLINED {
    const T a = static_cast<T>(x[first]), b = static_cast<T>(x[second]), c = cosine[i], s = sign * sine[i];
    write(y + first, a * c - b * s);
    write(y + second, a * s + b * c);
  };
  if (interleaved) {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) rotate(i, 2 * i, 2 * i + 1);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) rotate(i, i, i + pairs);
  }
}

}  // namespace

void rotate_pairs(View y, View x, View cosine, View sine, bool interleaved, bool inverse) {
  const std::int64_t pairs = cosine.shape[1];
  dispatch_mixed(cosine.dtype, y.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using X = decltype(mixed);
    for_each_row<X>(y, x, false, [&](X* row_y, const X* row_x, const Row& row) {
      const std::int64_t t = row.index % cosine.shape[0];
      rotate_row(row_y, row_x, cosine.as<T>() + t * pairs, sine.as<T>() + t * pairs, pairs, interleaved,
                 inverse ? T{-1} : T{1});
      if (row_x != row_y) std::copy(row_x + 2 * pairs, row_x + row.length, row_y + 2 * pairs);
    });
  });
}

}  // namespace tally::cpu
