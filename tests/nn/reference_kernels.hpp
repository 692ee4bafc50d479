// Attention of the CPU computed by the reference (core/cpu/attention/reference.hpp) instead of the fused kernels. This
// program brings its own kernel table (reference_kernels.cpp), which replaces the one of core/device/kernels.cpp.
#pragma once

namespace tally::testing {

// While one lives, `attention` and `attention_backward` of the CPU are the reference.
class WithReferenceAttention {
 public:
  WithReferenceAttention();
  ~WithReferenceAttention();
  WithReferenceAttention(const WithReferenceAttention&) = delete;
  WithReferenceAttention& operator=(const WithReferenceAttention&) = delete;
};

}  // namespace tally::testing
