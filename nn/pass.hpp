// What one forward pass is told, and what it may leave behind for dumps and pictures.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.hpp"
#include "core/tensor.hpp"

namespace tally {

// Attention of one layer as computed, without gradients.
struct AttentionTrace {
  Tensor weights;    // [B, H, T, T], before dropout
  Tensor gates;      // [B, H, T, T], where the encoding has them; 0 for heads without
  Tensor positions;  // [B, H, T, T], not clamped; 0 for heads without
};

// The step of a run: what its random numbers follow from. Where `scalar` is given, i32 [1] on the model's device, the
// number stands there, and a step that is captured once (core/graph.hpp) draws other numbers at every launch; it must
// outlive the backward pass.
struct StepContext {
  std::uint64_t seed = 0;  // of the run
  std::uint32_t number = 0;
  Tensor scalar = {};

  // That of one site in the model.
  RandomStream stream(std::uint32_t site) const {
    return {seed, site, number, scalar.defined() ? scalar.view().as<std::uint32_t>() : nullptr};
  }
};

// One forward pass.
struct Pass {
  bool training = false;  // dropout acts
  StepContext step = {};
  std::vector<AttentionTrace>* trace = nullptr;  // one entry per layer is appended
};

}  // namespace tally
