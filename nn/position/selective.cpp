// Selective attention (arXiv 2410.02703): a token masks earlier tokens that it does not need, for all tokens after it.
// For query i and key j <= i:
//   S_kj = relu(s'_kj) for 0 < j < k, else 0: the mask of token k on token j; no token masks itself.
//   F_ij = sum_{k<i} S_kj over the tokens k that attend to j;
//   l_ij = s_ij - F_ij.
// s' is the score of the first head, for all heads, or of each head separately, or of a separate query and key. It
// includes rotations, but no other encoding's bias. bos = false: token 0 may be masked, too.
//
// F is a sum down the queries, a policy's: memory is linear in the length; with a selector that is not each head's own
// score a product more is computed. Where no policy can be, beside another running sum, F is a bias of T x T numbers
// for each sequence (for each head of it with selector = own). While a text is generated one number a key is kept.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Masks {
  static constexpr PairNeeds needs{.distance = true, .down = true, .adds = true, .other = true};
  static constexpr auto down_gate(const auto& p) { return select(p.distance > 0, relu(p.other), 0); }
  static constexpr auto logit(const auto& p) { return p.s - p.down; }
};
// The number of a row is its index: that of a key is 0 where it is as large as the distance.
struct MasksButOfTokenZero {
  static constexpr PairNeeds needs{.distance = true, .down = true, .adds = true, .other = true, .rows = 1};
  static constexpr auto down_gate(const auto& p) {
    return select(min(p.distance, row<0>(p) - p.distance) > 0, relu(p.other), 0);
  }
  static constexpr auto logit(const auto& p) { return p.s - p.down; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(selective, Masks);
TALLY_PAIR(selective_but_of_token_zero, MasksButOfTokenZero);

#ifndef TALLY_PAIR_ONLY

#include "autograd/ops.hpp"
#include "nn/attention.hpp"
#include "nn/encoding.hpp"
#include "nn/seen.hpp"

namespace tally {
namespace {

struct SelectiveOptions final : OptionsOf<SelectiveOptions> {
  std::string selector = "first";
  bool bos = true;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("selector", selector, {"first", "own", "projection"},
                   "whose scores mask: those of the first head, of each head its own, or of a projection of their own");
    visitor.flag("bos", bos, "token 0 is never masked");
  }
};

class Selective final : public Encoding {
 public:
  Selective(const EncodingSetup& setup, const SelectiveOptions& options)
      : own_(options.selector == "own"), bos_(options.bos) {
    if (options.selector != "projection") return;
    const Shape shape{setup.head_width, setup.width};
    const Fill fill = setup.start->linear_weight(setup.width);
    query_ = setup.parameter("selector.query.weight", shape, fill, Scope::layer);
    key_ = setup.parameter("selector.key.weight", shape, fill, Scope::layer);
  }

  void score(const AttentionInput& in, Score& score) const override {
    const PairPolicy& policy = bos_ ? pair_selective_but_of_token_zero : pair_selective;
    if (score.scan || score.row_factor.defined() || in.cache != nullptr || !is_compiled(policy, in.q.device())) {
      score.biases.push_back(Dense{negate(sums_of(in))});
      return;
    }
    const Shape rows_shape{in.q.size(0), in.q.size(1), in.q.size(2), 1};
    score.set_scan(Pair{.policy = &policy,
                        .rows = bos_ ? broadcast_to(unsqueeze(in.distances(), 1), rows_shape) : Tensor{},
                        .other = selector(in, score.factor)});
  }

 private:
  // r_i.G_j / sqrt(d) = s'; nothing where that is the score itself.
  Gates selector(const AttentionInput& in, double factor) const {
    const Tensor &q = in.query(true), &k = in.key();
    const auto for_all_heads = [](const Tensor& x, const Tensor& heads) {
      return broadcast_to(x, {x.size(0), heads.size(1), x.size(2), x.size(3)});
    };
    if (query_.defined()) {
      return {for_all_heads(unsqueeze(linear(in.x, query_), 1), q), for_all_heads(unsqueeze(linear(in.x, key_), 1), k)};
    }
    if (!own_ && q.size(1) > 1) return {for_all_heads(slice(q, 1, 0, 1), q), for_all_heads(slice(k, 1, 0, 1), k)};
    return factor == 1 ? Gates{} : Gates{q, k};
  }

  // F [B, 1 or H, T, keys]
  Tensor sums_of(const AttentionInput& in) const {
    const Tensor masks = masks_of(in);                                    // S [B, 1 or H, T, keys]
    const Tensor upto = transpose(cumsum(transpose(masks, 2, 3)), 2, 3);  // with those of the query itself
    Tensor earlier = upto - masks;
    if (Tensor* const kept = in.kept("masks"); kept != nullptr) {
      if (kept->defined()) {
        Shape shape = kept->shape();
        shape[3] = in.keys() - shape[3];
        const Tensor before = concat({*kept, Tensor::zeros(shape, kept->dtype(), kept->device())}, 3);
        earlier = earlier + before;
        *kept = before + sum(masks, {2}, true);
      } else {
        *kept = sum(masks, {2}, true);
      }
    }
    return earlier;
  }

  Tensor masks_of(const AttentionInput& in) const {
    const Tensor& q = in.query(true);
    Tensor scores;
    if (query_.defined()) {
      const Tensor keys = in.keep("selector keys", linear(in.x, key_), 1);
      scores = unsqueeze(matmul(linear(in.x, query_), transpose(keys, -1, -2), in.scale), 1);
    } else {
      const Tensor keys = in.keep("keys of scores", in.key(), 2);
      const Tensor of_queries = own_ ? q : slice(q, 1, 0, 1);
      const Tensor of_keys = own_ ? for_query_heads(keys, q.size(1)) : slice(keys, 1, 0, 1);
      scores = matmul(of_queries, transpose(of_keys, -1, -2), in.scale);
    }
    const Tensor s = masked(relu(scores), seen_pairs(in.visible, in.keys(), q.dtype(), q.device(), in.first, true));
    if (!bos_) return s;
    const Tensor counts = in.distances();  // of a key from token 0
    return masked(s, less(Tensor::zeros({1}, s.dtype(), s.device()), counts));
  }

  bool own_, bos_;
  Tensor query_, key_;  // W' [d, D], of the selector projection
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(selective, SelectiveOptions, Selective, "tokens mask earlier tokens for all that come after",
               "S_kj = relu(s'_kj) for 0 < j < k;  l_ij = s_ij - sum_{k<i} S_kj;  s' of the first head, each own, or a "
               "projection;  beside another running sum costs B T² numbers a layer, B H T² with selector = own",
               "Selective attention: Leviathan et al. 2024, arXiv 2410.02703", .scans_alone = true);

#endif
