// One thread for each element of several views of one shape (core/math/loop.hpp), with any strides.
#pragma once

#include <array>
#include <cstdint>

#include "core/math/loop.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

inline constexpr unsigned element_threads = 256;  // per block

// f(offsets) for every element; a thread takes every (threads of the grid)-th.
template <std::size_t N, class F>
__global__ void element_kernel(Loop<N> loop, std::int64_t elements, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t n = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (loop.rank == 1) {
    // Dense views, without a loop over axes. Unrolled, the loop would divide to count its turns, which are mostly one.
    TALLY_ROLLED
    for (; n < elements; n += step) {
      std::array<std::int64_t, N> offsets;
      for (std::size_t view = 0; view < N; ++view) offsets[view] = n * loop.step[0][view];
      f(offsets);
    }
  } else {
    for (; n < elements; n += step) f(loop.element_offsets(n));
  }
}

// f has a __device__ operator()(const std::array<std::int64_t, N>&), which gets the offset in each of the views, in the
// order of make_loop's arguments. Error messages name the launch by the caller's line.
template <std::size_t N, class F>
void for_each_element(const Loop<N>& loop, const F& f, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  const std::int64_t elements = loop.rows() * loop.inner_size();
  if (elements == 0) return;
  launch(element_kernel<N, F>, Grid(blocks_for(elements, element_threads), file, line), element_threads, 0,
         context().stream, loop, elements, f);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
