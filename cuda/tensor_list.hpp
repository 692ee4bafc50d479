// Kernels that process several tensors at once: a model has about a hundred parameters, most of them smaller than the
// work of one block, and one launch per parameter would take as long as the work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/view.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

inline constexpr int list_tensors = 72;              // per launch: a kernel's parameters have 4 KiB
inline constexpr std::int64_t list_elements = 1024;  // per block, from one tensor
inline constexpr unsigned list_threads = 128;

// Up to list_tensors groups of N tensors; the first of each determines the group's number of elements.
template <std::size_t N>
struct TensorList {
  void* data[list_tensors][N];
  std::int64_t elements[list_tensors];
  std::int32_t end[list_tensors];  // the block after the group's last
  int count;

  // The group of a block, and that group's first block.
  __device__ int group_of(int block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (block < end[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  __device__ int first_of(int group) const { return group == 0 ? 0 : end[group - 1]; }
};

template <std::size_t N, class F>
__global__ void list_kernel(const __grid_constant__ TensorList<N> list, const F f) {
  const int group = list.group_of(static_cast<int>(blockIdx.x));
  const std::int64_t first = (static_cast<int>(blockIdx.x) - list.first_of(group)) * list_elements;
  const std::int64_t left = list.elements[group] - first;
  f(list, group, first, left < list_elements ? left : list_elements);
}

// Calls run(list, blocks) for lists that together have all tensors. tensors: N sets of views, of equal length.
template <std::size_t N, class Run>
void each_list(const Views (&tensors)[N], const Run& run) {
  const std::size_t all = tensors[0].size();
  for (std::size_t begin = 0; begin < all; begin += list_tensors) {
    TensorList<N> list{};
    list.count = static_cast<int>(std::min<std::size_t>(list_tensors, all - begin));
    std::int64_t blocks = 0;
    for (int group = 0; group < list.count; ++group) {
      const std::size_t index = begin + static_cast<std::size_t>(group);
      for (std::size_t n = 0; n < N; ++n) list.data[group][n] = tensors[n][index].data;
      list.elements[group] = tensors[0][index].numel();
      blocks += (list.elements[group] + list_elements - 1) / list_elements;
      list.end[group] = static_cast<std::int32_t>(blocks);
    }
    run(list, blocks);
  }
}

// f(list, group, first, count) on all threads of a block, for `count` elements of a group from `first` on.
template <std::size_t N, class F>
void launch_list(const TensorList<N>& list, std::int64_t blocks, const F& f, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  if (blocks == 0) return;
  launch(list_kernel<N, F>, Grid(static_cast<unsigned>(blocks), file, line), list_threads, 0, context().stream, list,
         f);
}
template <std::size_t N, class F>
void for_each_block_of(const Views (&tensors)[N], const F& f, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  each_list(tensors, [&](const TensorList<N>& list, std::int64_t blocks) { launch_list(list, blocks, f, file, line); });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
