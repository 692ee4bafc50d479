// Selective attention (arXiv 2410.02703): a token masks earlier tokens that it does not need, for all tokens after it.
// For query i and key j <= i:
//   S_kj = relu(s'_kj) for 0 < j < k, else 0: the mask of token k on token j; no token masks itself.
//   F_ij = sum_{k<i} S_kj over the tokens k that attend to j;
//   l_ij = s_ij - F_ij.
// s' is the score of the first head, for all heads, or of each head separately, or of a separate query and key. It
// includes rotations, but no other encoding's bias. bos = false: token 0 may be masked, too.
//
// F is a bias of T x T numbers for each sequence (for each head of it with selector = own). During generation one
// number per key is cached.
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
    score.biases.push_back(Dense{negate(sums_of(in))});
  }

 private:
  // F [B, 1 or H, T, keys]
  Tensor sums_of(const AttentionInput& in) const {
    const Tensor masks = masks_of(in);                                    // S [B, 1 or H, T, keys]
    const Tensor upto = transpose(cumsum(transpose(masks, 2, 3)), 2, 3);  // including the query's own masks
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

TALLY_ENCODING(
    selective, SelectiveOptions, Selective, "tokens mask earlier tokens for all that come after",
    "S_kj = relu(s'_kj) for 0 < j < k;  l_ij = s_ij - sum_{k<i} S_kj;  s' of the first head, each own, or a "
    "projection;  costs about 6 B T² numbers a layer and B H T² more in backward, with selector = own 7 B H T²",
    "Selective attention: Leviathan et al. 2024, arXiv 2410.02703");
