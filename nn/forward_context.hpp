// The inputs of one forward pass, and its optional records for dumps and pictures.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/math/random.hpp"
#include "core/tensor.hpp"

namespace tally {

// Attention of one layer as computed, without gradients. Each tensor is [B, H, T, T], 0 above the diagonal and for
// heads without such a value, and undefined if no head has it.
struct AttentionTrace {
  Tensor weights;    // a_ij, before dropout
  Tensor gates;      // g_ij of contextual positions; in a combination, of the first in the order of Score::scans
  Tensor positions;  // p_ij of the same, not clamped
  // The weights that position would give without content: from the terms added to the scores, l_ij - s_ij, by the same
  // rule (softmax or another softmax_rule). CoPE, arXiv 2405.18719, figure 4: softmax(z_i[p_ij]). Undefined without
  // added terms: rotations of q and k and positions in the embeddings cannot be separated from the content.
  Tensor position_weights;
  Tensor decay;   // exp(row_i + column_j): the share of key j that forget gates leave at query i
  Tensor breaks;  // sigmoid(l_ij) of stick-breaking: the fraction of the rest of the stick that key j takes
};

// One tensor of a trace, and its name in dumps.
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

// The step of a run, which determines its random numbers. If `scalar` is set, i32 [1] on the model's device, the step's
// number is read from it. Then a step that is captured once (core/device/graph.hpp) draws other numbers at every
// launch; `scalar` must outlive the backward pass.
struct StepContext {
  std::uint64_t seed = 0;  // of the run
  std::uint32_t number = 0;
  Tensor scalar = {};
  // The number of sequences before this one, if a batch is computed in parts: each part then draws the numbers that the
  // whole batch would draw.
  std::int64_t first_sequence = 0;

  // The stream of one place in the model, which draws `numbers` numbers for each sequence.
  RandomStream stream(std::uint32_t site, std::int64_t numbers) const {
    return {seed, site, number, scalar.defined() ? scalar.view().as<std::uint32_t>() : nullptr,
            static_cast<std::uint64_t>(first_sequence * numbers)};
  }
};

// The positions of tokens: consecutive from `first` on; for texts that are parts of longer sequences, given by `each`,
// which a model whose encodings do not embed may ignore; or drawn at random (nn/encoding/random_positions.hpp).
struct TokenPositions {
  std::int64_t first = 0;
  Tensor each = {};      // i32 [B, T] on the model's device
  std::int64_t end = 0;  // with `each` or `drawn`: above the largest position; otherwise 0
  Tensor drawn = {};     // f64 [T], ascending, of all sequences, on the model's device
  bool* read = nullptr;  // set to true when an encoding reads the positions

  // Rows of a table of positions, i32 [B, T] or [T]; undefined if they are consecutive.
  Tensor rows() const { return drawn.defined() ? drawn.to(DType::i32) : each; }
};

// One forward pass.
struct ForwardContext {
  bool training = false;  // enables dropout
  StepContext step = {};
  TokenPositions positions = {};
  std::vector<AttentionTrace>* trace = nullptr;  // one entry per layer is appended
};

}  // namespace tally
