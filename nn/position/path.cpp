// PaTH (arXiv 2505.16381): between key and query is a product of matrices that the tokens between them choose, each a
// reflection or part of one. Tokens t, heads h:
//   y_t = silu(conv(W2 W1 x_t)) per head,  w_t = y_t / sqrt(|y_t|² + 1e-6),  β_t = 2 sigmoid(u_h.x_t + b_h);
//   H_t = I - β_t w_t w_tᵀ,  s_ij = q_iᵀ H_i H_{i-1} ... H_{j+1} k_j / sqrt(d).
// The product includes the matrix of the query's own token, but not the key's: s_ii is plain. With `forget` it is
// PaTH-FoX: the sum L_i - L_j of log forget gates (fox) is added. It is divided by sqrt(d) as in the authors' code, or
// not, as in the paper, where gates are outside of the exponential (gate-scale none).
//
// The change of the scores is computed for all pairs, block by block of keys (nn/attention/moving_keys.hpp). Within a
// block of C tokens, rows in order, W [C, d], W' = diag(β) W, L = strictly tril(W' Wᵀ):
//   (I + L) Y = W',  (I + L) X = strictly tril(W' kᵀ)
//   own block     tril(q kᵀ) - tril(q Wᵀ) X         queries as earlier keys meet them   q - tril(q Wᵀ) Y
//   keys leaving  k - Xᵀ W                            earlier keys, moved on              k - (k Yᵀ) W
// (I + L) is solved row by row: powers of L grow without bound where neighbours are alike, as in repeated text.
#include <optional>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "nn/attention/attention.hpp"
#include "nn/attention/composed.hpp"
#include "nn/attention/moving_keys.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"
#include "nn/layers/layer_parts.hpp"

namespace tally {
namespace {

struct PathOptions final : OptionsOf<PathOptions> {
  std::int64_t rank = 32;
  bool conv = true;
  std::int64_t conv_size = 3;
  bool qk_norm = false;
  bool forget = false;
  std::string gate_scale = "sqrt-d";

  void visit(OptionVisitor& visitor) override {
    visitor.integer("rank", rank, "rank of the map from x to y; 0: one matrix of full rank", 0, 1 << 16);
    visitor.flag("conv", conv, "compute y by a convolution over the last tokens, then silu");
    visitor.only_with("conv", {"true"});
    visitor.integer("conv-size", conv_size, "width of the convolution in tokens; the last one is the token itself", 1,
                    64);
    visitor.flag("qk-norm", qk_norm, "RMSNorm of q and k per head");
    visitor.flag("forget", forget, "forget gates as in fox: PaTH-FoX");
    visitor.only_with("forget", {"true"});
    visitor.choice("gate-scale", gate_scale, {"sqrt-d", "none"},
                   "divisor of the summed log forget gates: sqrt(d) as in the authors' code, or 1 as in the paper");
  }
};

class Path final : public Encoding {
 public:
  Path(const EncodingSetup& setup, const PathOptions& options)
      : key_heads_(setup.key_heads), gates_over_root_(options.gate_scale == "sqrt-d") {
    const std::int64_t rows = key_heads_ * setup.head_width;
    const Fill small = Fill::normal(0.02);
    if (options.rank > 0) {
      down_ = setup.parameter("down.weight", {options.rank, setup.width}, small);
      up_ = setup.parameter("up.weight", {rows, options.rank}, small);
    } else {
      up_ = setup.parameter("direction.weight", {rows, setup.width}, small);
    }
    if (options.conv) conv_ = setup.parameter("conv.weight", {key_heads_, setup.head_width, options.conv_size}, small);
    strength_weight_ = setup.parameter("strength.weight", {key_heads_, setup.width}, small);
    strength_bias_ = setup.parameter("strength.bias", {key_heads_}, Fill::constant(0));
    if (options.qk_norm) norm_.emplace(setup);
    if (options.forget) forget_.emplace(setup);
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput&) const override {
    if (norm_.has_value()) (*norm_)(q, k);
  }

  void score(const AttentionInput& in, Score& score) const override {
    join_moved(in, "keys on their path", blocks_of(in), score);
    if (!forget_.has_value()) return;
    RowColumn gates = (*forget_)(in);
    if (gates_over_root_) gates = {gates.row * in.scale, gates.column * in.scale};
    score.biases.emplace_back(gates);
  }

 private:
  // w [B, G, T, d]
  Tensor directions(const AttentionInput& in) const {
    const Tensor projected = linear(down_.defined() ? linear(in.x, down_) : in.x, up_);
    Tensor y = split_heads(projected, key_heads_);
    if (conv_.defined()) y = in.keep("directions", y, 2);
    const auto unit = [queries = in.q.size(2)](const std::vector<Tensor>& of) {
      const Tensor u = of.size() > 1 ? silu(convolved(of[0], of[1], queries)) : of[0];
      return std::vector{u / sqrt(sum(square(u), {-1}, true) + 1e-6)};
    };
    return recomputed("path", conv_.defined() ? std::vector{y, conv_} : std::vector{y}, unit)[0];
  }

  MovedInBlocks blocks_of(const AttentionInput& in) const {
    const Tensor strength = sigmoid(linear(in.x, strength_weight_, strength_bias_)) * 2.0;  // β [B, T, G]
    const Tensor w = directions(in), beta = unsqueeze(transpose(strength, 1, 2), 3);
    const std::vector<Tensor> made =
        recomputed("path", {in.query(true), in.key(), w, beta}, {.axis = 2, .step = longest_block},
                   [](const std::vector<Tensor>& x) {
                     const Tensor direction = in_blocks(x[2], longest_block);
                     return moved(in_blocks(x[0], longest_block), in_blocks(x[1], longest_block), direction,
                                  direction * in_blocks(x[3], longest_block));
                   });
    MovedInBlocks blocks;
    blocks.own = made[0];
    blocks.queries = made[1];
    blocks.keys = made[2];
    blocks.read = in_blocks(w, longest_block);
    blocks.taken = made[3];
    return blocks;
  }

  // x [.., C, C] with 0 above the diagonal, and with `strictly` also on it.
  static Tensor tril(const Tensor& x, bool strictly = false) {
    return masked_fill_zero(x, mask_tensor({}, x.size(-1), x.dtype(), x.device(), 0, strictly));
  }
  // own, queries, keys and taken of the blocks; w and beta w.
  static std::vector<Tensor> moved(const Tensor& q, const Tensor& k, const Tensor& direction, const Tensor& scaled) {
    const Tensor l = matmul(scaled, transpose(direction, -1, -2));
    const Tensor from_keys = tril(matmul(scaled, transpose(k, -1, -2)), true);
    const std::int64_t d = q.size(4), all = d + from_keys.size(4);
    const Tensor both = solve_unit_lower(l, concat({scaled, from_keys}, 4));
    const Tensor y = slice(both, 4, 0, d), x = slice(both, 4, d, all);

    // For each of the query heads that share a key head.
    const auto shared = [&](const Tensor& of_keys) {
      const Shape& s = of_keys.shape();
      if (s[1] == q.size(1)) return of_keys;
      const Tensor rows = repeat_kv(reshape(of_keys, {s[0], s[1], s[2] * s[3], s[4]}), q.size(1));
      return reshape(rows, {s[0], q.size(1), s[2], s[3], s[4]});
    };
    const Tensor a = tril(matmul(q, transpose(shared(direction), -1, -2)));
    return {matmul(q, transpose(shared(k), -1, -2)) - matmul(a, shared(x)), q - matmul(a, shared(y)),
            k - matmul(transpose(x, -1, -2), direction), contiguous(y)};
  }

  std::int64_t key_heads_;
  bool gates_over_root_;
  Tensor down_, up_;                        // W1 [rank, D], W2 [G d, rank or D]
  Tensor conv_;                             // [G, d, size]
  Tensor strength_weight_, strength_bias_;  // u [G, D], b [G]
  std::optional<QueryKeyNorm> norm_;
  std::optional<ForgetGates> forget_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    path, PathOptions, Path, "products of matrices computed from the tokens between key and query",
    "y_t = silu(conv(W2 W1 x_t)) per head;  w_t = y_t / sqrt(|y_t|² + 1e-6);  β_t = 2 sigmoid(u_h.x_t + b_h)\n"
    "l_ij = q_iᵀ H_i ... H_{j+1} k_j / sqrt(d);  H_t = I - β_t w_t w_tᵀ\n"
    "forget: plus (sum_{u=j+1..i} log f_u) / sqrt(d), f as in fox;  gate-scale = none: not divided\n"
    "needs memory for H T² numbers a sequence and layer",
    "PaTH, PaTH-FoX: Yang et al. 2025, arXiv 2505.16381", .before_rotations = true, .needs_head_width = true,
    .also_called = "path-fox");
