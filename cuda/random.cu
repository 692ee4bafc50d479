// Random numbers by element, and dropout: element n is a function of (stream, n) alone, so every thread draws its own.
// Same bits as on the CPU: what dropout keeps is decided in whole numbers, uniform numbers are rounded once, and normal
// numbers come from operations that all devices round alike (core/random_normal.hpp).
#include "core/kernels.hpp"
#include "core/random_normal.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct DrawUniform {
  T* y;
  RandomStream stream;
  double low, high;
  __device__ void operator()(std::int64_t n) const {
    y[n] = static_cast<T>(uniform_from_bits(stream.now().bits(static_cast<std::uint64_t>(n)), low, high));
  }
};

template <class T>
struct DrawNormal {
  T* y;
  RandomStream stream;
  double mean, deviation;
  __device__ void operator()(std::int64_t n) const {
    const RandomStream drawn = stream.now();
    const auto first = 2 * static_cast<std::uint64_t>(n);
    y[n] = static_cast<T>(normal_from_bits(drawn.bits(first), drawn.bits(first + 1), mean, deviation));
  }
};

template <class T>
struct Drop {
  T* y;
  const T* x;
  RandomStream stream;
  T scale;
  std::int32_t threshold;  // of the upper 24 bits
  __device__ void operator()(std::int64_t n) const {
    const std::uint32_t bits = stream.now().bits(static_cast<std::uint64_t>(n));
    y[n] = static_cast<std::int32_t>(bits >> 8) >= threshold ? x[n] * scale : T{0};
  }
};

}  // namespace

void random_uniform(View y, RandomStream stream, double low, double high) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(y.numel(), DrawUniform<T>{y.as<T>(), stream, low, high});
  });
}

void random_normal(View y, RandomStream stream, double mean, double deviation) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(y.numel(), DrawNormal<T>{y.as<T>(), stream, mean, deviation});
  });
}

void dropout(View y, View x, double rate, RandomStream stream) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(y.numel(), Drop<T>{y.as<T>(), x.as<T>(), stream, static_cast<T>(1.0 / (1.0 - rate)),
                                      static_cast<std::int32_t>(std::ceil(rate * 0x1p24))});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
