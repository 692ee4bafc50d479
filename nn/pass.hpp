// What one forward pass is told, and what it may leave behind for dumps and pictures.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// Attention of one layer as computed, without gradients.
struct AttentionTrace {
  Tensor weights;    // [B, H, T, T], before dropout
  Tensor gates;      // [B, H, T, T], where the encoding has them; 0 for heads without
  Tensor positions;  // [B, H, T, T], not clamped; 0 for heads without
};

// One forward pass.
struct Pass {
  bool training = false;   // dropout acts
  std::uint64_t seed = 0;  // of the run; dropout masks follow from (seed, site, step)
  std::uint32_t step = 0;
  const std::uint32_t* step_at = nullptr;        // in the model's device memory: the step is read there (RandomStream)
  std::vector<AttentionTrace>* trace = nullptr;  // one entry per layer is appended
};

}  // namespace tally
