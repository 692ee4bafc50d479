// Filling, and copying with type conversion; both sides may have any strides. Rounding of many tensors by one kernel.
#include "core/device/kernels.hpp"
#include "core/math/math.hpp"
#include "cuda/strided.hpp"
#include "cuda/tensor_list.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class To, class From>
TALLY_INLINE To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{};
  } else {
    return static_cast<To>(value);
  }
}

template <class T>
struct Fill {
  T* y;
  T value;
  __device__ void operator()(const std::array<std::int64_t, 1>& at) const { y[at[0]] = value; }
};

template <class To, class From>
struct Copy {
  To* y;
  const From* x;
  __device__ void operator()(const std::array<std::int64_t, 2>& at) const { y[at[0]] = convert<To>(x[at[1]]); }
};

// data: y, x
struct RoundToBf16 {
  __device__ void operator()(const TensorList<2>& list, int group, std::int64_t first, std::int64_t count) const {
    auto* const y = static_cast<Bfloat16*>(list.data[group][0]) + first;
    const auto* const x = static_cast<const float*>(list.data[group][1]) + first;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) y[i] = static_cast<Bfloat16>(x[i]);
  }
};

}  // namespace

void fill(View y, double value) {
  const auto loop = make_loop(y.shape, y);
  dispatch_all(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_element(loop, Fill<T>{y.as<T>(), convert<T>(value)});
  });
}

void copy(View y, View x) {
  const auto loop = make_loop(y.shape, y, x);
  dispatch_all(y.dtype, [&](auto type_y) {
    using To = decltype(type_y);
    dispatch_all(x.dtype, [&](auto type_x) {
      using From = decltype(type_x);
      for_each_element(loop, Copy<To, From>{y.as<To>(), x.as<From>()});
    });
  });
}

void round_to_bf16(Views y, Views x) { for_each_block_of<2>({y, x}, RoundToBf16{}); }

}  // namespace tally::TALLY_CUDA_NAMESPACE
