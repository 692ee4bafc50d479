// The kernels of attention with a pair policy (core/attention/pair.hpp), compiled with it.
#pragma once

#include "cuda/attention/backward_keys.hpp"
#include "cuda/attention/backward_rows.hpp"
#include "cuda/attention/forward.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Calls f(device) with the DeviceCall in the call's type.
template <class F>
void with_device_call(const AttentionCall& call, const void* device, const F& f) {
  dispatch_floating(call.q.dtype, [&](auto zero) { f(*static_cast<const DeviceCall<decltype(zero)>*>(device)); });
}

template <class Policy>
constexpr PairKernels pair_kernels() {
  return {&forward<Policy>,
          [](const AttentionCall& call, const void* device) {
            with_device_call(call, device, [&](const auto& d) { backward_rows<Policy>(call, d); });
          },
          [](const AttentionCall& call, const void* device) {
            with_device_call(call, device, [&](const auto& d) { backward_keys<Policy>(call, d); });
          }};
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
