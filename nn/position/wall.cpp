// Wall: every channel of a key decays separately, at a rate that the tokens after it choose. No paper; after the
// released code of flash-linear-attention (fla/layers/wall_attn.py). For channel n of a head:
//   g_t = log sigmoid(W x_t + b) <= 0,  P_t = sum_{m<=t} g_m,  s_ij = sum_n q_in k_jn exp(P_in - P_jn) / sqrt(d).
// A score decays towards 0, not its weight. If all channels are alike it is s_ij exp(L_i - L_j). With scalar-gate the
// forget gates of fox, L_i - L_j, are added to the logits. They start as open as the channels: b = 8, sigmoid(8) =
// 0.9997.
//
// The change of the scores is computed for all pairs, block by block of keys (nn/attention/moving_keys.hpp). All
// exponents are <= 0: within a few tokens they are computed pair by pair, otherwise from the start of a block.
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

constexpr std::int64_t pair_by_pair = 8;  // tokens
constexpr double open = 8;

struct WallOptions final : OptionsOf<WallOptions> {
  bool scalar_gate = false;
  bool qk_norm = false;

  void visit(OptionVisitor& visitor) override {
    visitor.flag("scalar-gate", scalar_gate, "add forget gates as in fox");
    visitor.flag("qk-norm", qk_norm, "RMSNorm of q and k per head");
  }
};

class Wall final : public Encoding {
 public:
  Wall(const EncodingSetup& setup, const WallOptions& options) : heads_(setup.heads) {
    const std::int64_t channels = setup.heads * setup.head_width;
    weight_ = setup.parameter("decay.weight", {channels, setup.width}, Fill::normal(0.02));
    bias_ = setup.parameter("decay.bias", {channels}, Fill::constant(open));
    if (options.qk_norm) norm_.emplace(setup);
    if (options.scalar_gate) forget_.emplace(setup, 1, open);
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput&) const override {
    if (norm_.has_value()) (*norm_)(q, k);
  }

  void score(const AttentionInput& in, Score& score) const override {
    join_moved(in, "faded keys", blocks_of(in), score);
    if (forget_.has_value()) score.biases.emplace_back((*forget_)(in));
  }

 private:
  MovedInBlocks blocks_of(const AttentionInput& in) const {
    const Tensor openings = split_heads(linear(in.x, weight_, bias_), heads_);
    const std::vector<Tensor> made = recomputed(
        "wall", {in.query(true), repeat_kv(in.key(), heads_), openings}, {.axis = 2, .step = longest_block},
        [](const std::vector<Tensor>& x) {
          const Tensor decay = negate(softplus(negate(x[2])));  // log sigmoid
          return moved(in_blocks(x[0], longest_block), in_blocks(x[1], longest_block), in_blocks(decay, longest_block));
        });
    MovedInBlocks blocks;
    blocks.own = made[0];
    blocks.queries = made[1];
    blocks.keys = made[2];
    blocks.factor = made[3];
    return blocks;
  }

  // own, queries, keys and factor of the blocks.
  static std::vector<Tensor> moved(const Tensor& q, const Tensor& k, const Tensor& g) {
    const MovedInBlocks blocks = faded(q, k, g);
    // Each block is a text of its own, in blocks of few tokens.
    const Shape& all = g.shape();
    const auto few = [&](const Tensor& x) {
      return in_blocks(reshape(x, {all[0], all[1] * all[2], all[3], all[4]}), pair_by_pair);
    };
    const Tensor few_q = few(q), few_k = few(k), few_g = few(g);
    MovedInBlocks parts = faded(few_q, few_k, few_g);
    parts.own = products_of_pairs(few_q, few_k, few_g);
    const Tensor own = slice(slice(products_of(parts), 2, 0, all[3]), 3, 0, all[3]);
    return {reshape(own, {all[0], all[1], all[2], all[3], all[3]}), blocks.queries, blocks.keys, blocks.factor};
  }

  // From a block's start on.
  static Tensor sums_of(const Tensor& g) { return transpose(cumsum(transpose(g, 3, 4)), 3, 4); }

  // Without the products within blocks.
  static MovedInBlocks faded(const Tensor& q, const Tensor& k, const Tensor& g) {
    const Tensor p = sums_of(g), whole = slice(p, 3, g.size(3) - 1, g.size(3));  // [B, H, N, 1, d]
    MovedInBlocks blocks;
    blocks.queries = q * exp(p);
    blocks.keys = k * exp(whole - p);
    blocks.factor = exp(select(whole, 3, 0));
    return blocks;
  }

  // For pairs, [B, H, N, C, C, d]; masked before pairs with later keys can overflow.
  static Tensor products_of_pairs(const Tensor& q, const Tensor& k, const Tensor& g) {
    const Tensor p = sums_of(g), pairs = unsqueeze(p, 4) - unsqueeze(p, 3);
    const Tensor earlier = unsqueeze(mask_tensor({}, g.size(3), p.dtype(), p.device()), 3);
    const Tensor zero = Tensor::zeros({1}, p.dtype(), p.device());
    const Tensor keys = exp(where(earlier, pairs, zero)) * unsqueeze(k, 3);  // by query, then key
    return sum(keys * unsqueeze(q, 4), {-1});
  }

  std::int64_t heads_;
  Tensor weight_, bias_;  // W [H d, D], b [H d]
  std::optional<QueryKeyNorm> norm_;
  std::optional<ForgetGates> forget_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    wall, WallOptions, Wall, "keys decay per channel, at rates set by the tokens after them",
    "g_t = log sigmoid(W x_t + b) per channel;  P_t = sum_{m<=t} g_m\n"
    "l_ij = sum_n q_in k_jn exp(P_in - P_jn) / sqrt(d);  scalar-gate: plus sum_{u=j+1..i} log f_u, f as in fox\n"
    "needs memory for H T² numbers a sequence and layer",
    "no paper; flash-linear-attention, fla/layers/wall_attn.py", .before_rotations = true, .needs_head_width = true);
