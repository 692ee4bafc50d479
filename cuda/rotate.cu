// Rotation of pairs (formulas: core/cpu/rotate.cpp). One thread per pair, or per element that is not rotated.
#include "core/device/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

// X: T, or bf16 if T is f32.
template <class T, class X>
struct RotatePair {
  X* y;
  const X* x;
  const T *cosine, *sine;
  Loop<1> leading;
  std::int64_t length, width, step, pairs;
  bool interleaved;
  T sign;

  __device__ void operator()(std::int64_t n) const {
    const std::int64_t each = width - pairs;  // threads per row
    const std::int64_t row = n / each, i = n % each;
    const X* const row_x = x + leading.element_offsets(row)[0];
    X* const row_y = y + row * width;
    if (i >= pairs) {
      row_y[i + pairs] = row_x[(i + pairs) * step];
      return;
    }
    const std::int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + pairs;
    const std::int64_t angle = row % length * pairs + i;
    const T a = static_cast<T>(row_x[first * step]), b = static_cast<T>(row_x[second * step]);
    const T c = cosine[angle], s = sign * sine[angle];
    row_y[first] = static_cast<X>(a * c - b * s);
    row_y[second] = static_cast<X>(a * s + b * c);
  }
};

}  // namespace

void rotate_pairs(View y, View x, View cosine, View sine, bool interleaved, bool inverse) {
  if (y.numel() == 0) return;
  const View leading = leading_axes(x);
  const std::int64_t width = x.shape.back(), pairs = cosine.shape[1];
  dispatch_mixed(cosine.dtype, y.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using X = decltype(mixed);
    for_each_index(
        leading.numel() * (width - pairs),
        RotatePair<T, X>{y.as<X>(), x.as<X>(), cosine.as<T>(), sine.as<T>(), make_loop(leading.shape, leading),
                         cosine.shape[0], width, row_step(x), pairs, interleaved, inverse ? T{-1} : T{1}});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
