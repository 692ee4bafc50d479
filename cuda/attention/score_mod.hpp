// The kernels of attention with a score modification (core/attention/score_mod.hpp), compiled with it.
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

template <class Mod>
constexpr ScoreModKernels score_mod_kernels() {
  return {takes_bf16<Mod>, &forward<Mod>,
          [](const AttentionCall& call, const void* device) {
            with_device_call(call, device, [&](const auto& d) { backward_rows<Mod>(call, d); });
          },
          [](const AttentionCall& call, const void* device) {
            with_device_call(call, device, [&](const auto& d) { backward_keys<Mod>(call, d); });
          }};
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
