// Wall: every channel of a key fades by itself, as fast as the tokens after it say. No paper; after the released code
// of flash-linear-attention (fla/layers/wall_attn.py). For channel n of a head:
//   g_t = log sigmoid(W x_t + b) <= 0,  P_t = sum_{m<=t} g_m,  s_ij = sum_n q_in k_jn exp(P_in - P_jn) / sqrt(d)
// A score moves towards 0, not its weight. With all channels alike it is s_ij exp(L_i - L_j). With scalar-gate the
// forget gates of fox join the logits, L_i - L_j, as open at first as the channels: b = 8, sigmoid(8) = 0.9997.
//
// What it does to the scores is formed for all pairs and joins them as a bias, which costs T² numbers; rescaling q and
// k as a tile is loaded would need no more than T d, and is not here. All exponents are <= 0: within a block of 16
// tokens pair by pair, else by way of the block's start.
#include <optional>

#include "autograd/ops.hpp"
#include "nn/attention.hpp"
#include "nn/encoding.hpp"
#include "nn/gates.hpp"
#include "nn/layer_parts.hpp"
#include "nn/moving_keys.hpp"

namespace tally {
namespace {

constexpr std::int64_t longest_block = 16;
constexpr double open = 8;

struct WallOptions final : OptionsOf<WallOptions> {
  bool scalar_gate = false;
  bool qk_norm = false;

  void visit(OptionVisitor& visitor) override {
    visitor.flag("scalar-gate", scalar_gate, "forget gates as in fox join the logits");
    visitor.flag("qk-norm", qk_norm, "RMSNorm of q and k per head");
  }
};

class Wall final : public Encoding {
 public:
  Wall(const EncodingSetup& setup, const WallOptions& options) : heads_(setup.heads) {
    const std::int64_t channels = setup.heads * setup.head_width;
    weight_ = setup.parameter("decay.weight", {channels, setup.width}, Fill::normal(0.02), Scope::layer);
    bias_ = setup.parameter("decay.bias", {channels}, Fill::constant(open), Scope::layer);
    if (options.qk_norm) {
      query_norm_.emplace(setup, "query-norm", setup.heads);
      key_norm_.emplace(setup, "key-norm", setup.key_heads);
    }
    if (options.scalar_gate) forget_.emplace(setup, 1, open);
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput&) const override {
    if (!query_norm_.has_value()) return;
    q = (*query_norm_)(q);
    k = (*key_norm_)(k);
  }

  void score(const AttentionInput& in, Score& score) const override {
    score.biases.emplace_back(moved_scores(in, "faded keys", blocks_of(in)));
    if (forget_.has_value()) score.biases.emplace_back((*forget_)(in));
  }

 private:
  MovedInBlocks blocks_of(const AttentionInput& in) const {
    const Tensor decay = negate(softplus(negate(linear(in.x, weight_, bias_))));  // g
    const Tensor g = in_blocks(split_heads(decay, heads_), longest_block), q = in_blocks(in.query(true), longest_block),
                 k = in_blocks(for_query_heads(in.key(), heads_), longest_block);  // [B, H, N, C, d]
    const std::int64_t block = g.size(3);
    const Tensor p = transpose(cumsum(transpose(g, 3, 4)), 3, 4);  // from the block's start on
    const Tensor whole = slice(p, 3, block - 1, block);            // [B, H, N, 1, d]

    // Of pairs, [B, H, N, C, C, d]; those of later keys are left out before they can overflow.
    const Tensor pairs = unsqueeze(p, 4) - unsqueeze(p, 3), zero = Tensor::zeros({1}, p.dtype(), p.device());
    const Tensor earlier = unsqueeze(earlier_in_block(block, p, false), 2);
    const Tensor faded = exp(where(earlier, pairs, zero)) * unsqueeze(k, 3);  // by query, then key
    MovedInBlocks blocks;
    blocks.own = sum(faded * unsqueeze(q, 4), {-1});
    blocks.queries = q * exp(p);
    blocks.keys = k * exp(whole - p);
    const Tensor left = exp(whole);
    blocks.move = [left](const Tensor& keys, std::int64_t n) { return keys * select(left, 2, n); };
    return blocks;
  }

  std::int64_t heads_;
  Tensor weight_, bias_;  // W [H d, D], b [H d]
  std::optional<HeadNorm> query_norm_, key_norm_;
  std::optional<ForgetGates> forget_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    wall, WallOptions, Wall, "keys fade channel by channel, as fast as the tokens after them say",
    "g_t = log sigmoid(W x_t + b) per channel;  P_t = sum_{m<=t} g_m\n"
    "l_ij = sum_n q_in k_jn exp(P_in - P_jn) / sqrt(d);  scalar-gate: plus sum_{u=j+1..i} log f_u, f as in fox\n"
    "costs B H T² numbers a layer and about B H (d/32 + 2) T² more in backward",
    "no paper; flash-linear-attention, fla/layers/wall_attn.py", .before_rotations = true,
    .doubtful_beside = {"path", "path and wall each change q.k: in a sum both changes join the plain score"});
