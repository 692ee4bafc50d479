// What one forward pass is told, and what it may leave behind for dumps and pictures.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/random.hpp"
#include "core/tensor.hpp"

namespace tally {

// Attention of one layer as computed, without gradients. Each is [B, H, T, T], 0 above the diagonal and for heads that
// have none, and undefined where no head has any.
struct AttentionTrace {
  Tensor weights;    // a_ij, before dropout
  Tensor gates;      // g_ij, where positions are contextual
  Tensor positions;  // p_ij, not clamped
  // The weights if position alone decided: from what joins the scores, l_ij - s_ij, by the same rule (softmax or
  // another of the encoding). CoPE, arXiv 2405.18719, figure 4: softmax(z_i[p_ij]). Undefined where nothing joins them:
  // positions that turn q and k or are part of the embeddings cannot be had without what stands there.
  Tensor position_weights;
  Tensor decay;   // exp(row_i + column_j): what forget gates have left of key j at query i
  Tensor breaks;  // sigmoid(l_ij) of stick-breaking: the share of what is left that key j takes
};

// What of a trace dumps hold, by the name it has there.
struct AttentionTracePart {
  const char* name;
  Tensor AttentionTrace::*tensor;
};
inline constexpr std::array<AttentionTracePart, 6> attention_trace_parts{{
    {"weights", &AttentionTrace::weights},
    {"gates", &AttentionTrace::gates},
    {"positions", &AttentionTrace::positions},
    {"position_weights", &AttentionTrace::position_weights},
    {"decay", &AttentionTrace::decay},
    {"breaks", &AttentionTrace::breaks},
}};

// The step of a run: what its random numbers follow from. Where `scalar` is given, i32 [1] on the model's device, the
// number stands there, and a step that is captured once (core/graph.hpp) draws other numbers at every launch; it must
// outlive the backward pass.
struct StepContext {
  std::uint64_t seed = 0;  // of the run
  std::uint32_t number = 0;
  Tensor scalar = {};
  // Where a batch is computed in parts: the number of sequences before this one, so that each part draws what the whole
  // batch would.
  std::int64_t first_sequence = 0;

  // That of one site in the model, which draws so many numbers for each sequence.
  RandomStream stream(std::uint32_t site, std::int64_t numbers) const {
    return {seed, site, number, scalar.defined() ? scalar.view().as<std::uint32_t>() : nullptr,
            static_cast<std::uint64_t>(first_sequence * numbers)};
  }
};

// Where tokens stand: one after the other from `first` on; or, of texts that are parts of longer sequences, as `each`
// says, which a model without encodings that embed may be spared.
struct TokenPositions {
  std::int64_t first = 0;
  Tensor each = {};      // i32 [B, T] on the model's device
  std::int64_t end = 0;  // of such texts, else 0: beyond the last of all positions
};

// One forward pass.
struct Pass {
  bool training = false;  // dropout acts
  StepContext step = {};
  TokenPositions positions = {};
  std::vector<AttentionTrace>* trace = nullptr;  // one entry per layer is appended
};

}  // namespace tally
