// Random numbers by element: element n depends only on (stream, n), so tiles are drawn independently.
#include <cmath>

#include "core/cpu/strided.hpp"
#include "core/device/kernels.hpp"
#include "core/math/random_normal.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t chunk = 1024;
static_assert(chunk % 4 == 0 && tile_elements % chunk == 0);

// Elements begin .. begin + n - 1 of the stream, with room for whole blocks of four; begin is a multiple of 4.
TALLY_CLONES void draw(std::uint32_t* bits, RandomStream stream, std::uint64_t begin, std::int64_t n) {
  const std::uint64_t first = begin / 4;
  const std::int64_t blocks = (n + 3) / 4;
#pragma omp simd
  for (std::int64_t b = 0; b < blocks; ++b) {
    const PhiloxBlock block = stream.block(first + static_cast<std::uint64_t>(b));
    bits[4 * b] = block[0];
    bits[4 * b + 1] = block[1];
    bits[4 * b + 2] = block[2];
    bits[4 * b + 3] = block[3];
  }
}

// Calls f(i, bits, count) for elements i .. i + count - 1, together 0..n-1; bits holds `draws` words for each element.
template <std::int64_t draws, class F>
void for_each_drawn_chunk(std::int64_t n, RandomStream named, F&& f) {
  const RandomStream stream = named.now();
  parallel_for_blocks(n, tile_elements, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t bits[static_cast<std::size_t>(draws * chunk) + 4];
    constexpr auto each = static_cast<std::uint64_t>(draws);
    const std::uint64_t before = each * stream.first % 4;  // words of the first block that belong to earlier elements
    for (std::int64_t i = begin; i < end; i += chunk) {
      const std::int64_t count = std::min(chunk, end - i);
      const std::uint64_t word = each * (stream.first + static_cast<std::uint64_t>(i));
      draw(bits, stream, word - before, draws * count + static_cast<std::int64_t>(before));
      f(i, bits + before, count);
    }
  });
}

// Keeps an element if uniform_from_bits(word) >= rate: if the upper 24 bits reach rate * 2^24.
template <class T>
TALLY_CLONES void keep_or_drop(T* y, const T* x, const std::uint32_t* bits, double rate, std::int64_t n) {
  const T scale = static_cast<T>(1.0 / (1.0 - rate));
  const auto threshold = static_cast<std::int32_t>(std::ceil(rate * 0x1p24));
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = static_cast<std::int32_t>(bits[i] >> 8) >= threshold ? x[i] * scale : T{0};
}

template <class T>
TALLY_CLONES void uniforms(T* y, const std::uint32_t* bits, double low, double high, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(uniform_from_bits(bits[i], low, high));
}

template <class T>
TALLY_CLONES void normals(T* y, const std::uint32_t* bits, double mean, double deviation, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<T>(normal_from_bits(bits[2 * i], bits[2 * i + 1], mean, deviation));
  }
}

}  // namespace

void random_uniform(View y, RandomStream stream, double low, double high) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_drawn_chunk<1>(y.numel(), stream, [&](std::int64_t begin, const std::uint32_t* bits, std::int64_t n) {
      uniforms(y.as<T>() + begin, bits, low, high, n);
    });
  });
}

void random_normal(View y, RandomStream stream, double mean, double deviation) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_drawn_chunk<2>(y.numel(), stream, [&](std::int64_t begin, const std::uint32_t* bits, std::int64_t n) {
      normals(y.as<T>() + begin, bits, mean, deviation, n);
    });
  });
}

void dropout(View y, View x, double rate, RandomStream stream) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_drawn_chunk<1>(y.numel(), stream, [&](std::int64_t begin, const std::uint32_t* bits, std::int64_t n) {
      keep_or_drop(y.as<T>() + begin, x.as<T>() + begin, bits, rate, n);
    });
  });
}

}  // namespace tally::cpu
