// Random numbers by element, and dropout: element n depends only on (stream, n), so every thread draws its own. The
// bits are the same as on the CPU: dropout decides in integers, uniform numbers are rounded once, and normal numbers
// come from operations that all devices round alike (core/math/random_normal.hpp).
#include "core/device/kernels.hpp"
#include "core/math/random_normal.hpp"
#include "cuda/rows.hpp"
#include "cuda/runtime/instructions.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

// Element n of y is function(n, words), with its own `words_each` words of the stream. A thread takes a block of four
// words and computes their elements; some elements of the first block may precede y.
template <class T, int words_each, class F>
struct Draw {
  T* y;
  std::int64_t count;
  RandomStream stream;
  F function;
  __device__ void operator()(std::int64_t n) const {
    constexpr int each = 4 / words_each;
    const PhiloxBlock words = stream.now().block(stream.first / each + static_cast<std::uint64_t>(n));
    const std::int64_t begin = n * each - static_cast<std::int64_t>(stream.first % each);
    T values[static_cast<std::size_t>(each)];
    TALLY_UNROLL
    for (int i = 0; i < each; ++i) {
      const std::int64_t element = begin + i;
      values[i] = element >= 0 && element < count ? function(element, words.data() + i * words_each) : T{0};
    }
    // Whole blocks are written at once if they are aligned.
    if (begin >= 0 && begin + each <= count && reinterpret_cast<std::uintptr_t>(y + begin) % sizeof(values) == 0) {
      detail::write(y + begin, values);
      return;
    }
    for (int i = 0; i < each && begin + i < count; ++i) {
      if (begin + i >= 0) y[begin + i] = values[i];
    }
  }
};

template <class T, int words_each, class F>
void draw(const View& y, RandomStream stream, const F& function, const char* file = __builtin_FILE(),
          int line = __builtin_LINE()) {
  constexpr std::int64_t each = 4 / words_each;
  const std::int64_t count = y.numel(), words = count + static_cast<std::int64_t>(stream.first % each);
  for_each_index((words + each - 1) / each, Draw<T, words_each, F>{y.as<T>(), count, stream, function}, file, line);
}

template <class T>
struct Uniform {
  double low, high;
  __device__ T operator()(std::int64_t, const std::uint32_t* words) const {
    return static_cast<T>(uniform_from_bits(words[0], low, high));
  }
};

template <class T>
struct Normal {
  double mean, deviation;
  __device__ T operator()(std::int64_t, const std::uint32_t* words) const {
    return static_cast<T>(normal_from_bits(words[0], words[1], mean, deviation));
  }
};

template <class T>
struct Drop {
  const T* x;
  T scale;
  std::int32_t threshold;  // of the upper 24 bits
  __device__ T operator()(std::int64_t n, const std::uint32_t* words) const {
    return static_cast<std::int32_t>(words[0] >> 8) >= threshold ? x[n] * scale : T{0};
  }
};

}  // namespace

void random_uniform(View y, RandomStream stream, double low, double high) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    draw<T, 1>(y, stream, Uniform<T>{low, high});
  });
}

void random_normal(View y, RandomStream stream, double mean, double deviation) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    draw<T, 2>(y, stream, Normal<T>{mean, deviation});
  });
}

void dropout(View y, View x, double rate, RandomStream stream) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    draw<T, 1>(
        y, stream,
        Drop<T>{x.as<T>(), static_cast<T>(1.0 / (1.0 - rate)), static_cast<std::int32_t>(std::ceil(rate * 0x1p24))});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
