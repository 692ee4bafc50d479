// Selective attention (arXiv 2410.02703): a token masks earlier tokens that it does not need, for all tokens after it.
// For query i and key j <= i:
//   S_kj = relu(s'_kj) for 0 < j < k, else 0: the mask of token k on token j; no token masks itself.
//   F_ij = sum_{k<i} S_kj over the tokens k that attend to j;
//   l_ij = s_ij - F_ij.
// s' is the score of the first head, for all heads, or of each head separately, or of a separate query and key. It
// includes rotations, but no other encoding's bias. bos = false: token 0 may be masked, too.
//
// F is a bias of T x T numbers for each sequence (for each head of it with selector = own). While a text is generated
// one number a key is kept.
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "nn/attention/attention.hpp"
#include "nn/attention/composed.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct SelectiveOptions final : OptionsOf<SelectiveOptions> {
  std::string selector = "first";
  bool bos = true;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("selector", selector, {"first", "own", "projection"},
                   "scores that mask: the first head's, each head's own, or a separate projection's");
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
    query_ = setup.parameter("selector.query.weight", shape, fill);
    key_ = setup.parameter("selector.key.weight", shape, fill);
  }

  void score(const AttentionInput& in, Score& score) const override {
    const auto [queries, keys] = selector(in);
    const Masks masks{in.scale, in.mask, in.first, bos_ ? in.distances() : Tensor()};
    if (in.cache != nullptr) {
      score.biases.push_back(Dense{negate(sums_with_earlier(in, masks.of(queries, keys)))});
      return;
    }
    const std::vector<Tensor> bias = recomputed("selective", {queries, keys}, [masks](const std::vector<Tensor>& of) {
      const Tensor own = masks.of(of[0], of[1]);
      return std::vector<Tensor>{own - sums_down(own)};
    });
    score.biases.push_back(Dense{bias[0]});
  }

 private:
  // S [B, 1 or H, T, keys]
  struct Masks {
    double scale;
    AttentionMask mask;
    std::int64_t first;
    Tensor distances;  // of a key from token 0; undefined: it may be masked, too

    Tensor of(const Tensor& queries, const Tensor& keys) const {
      const Tensor scores = relu(matmul(queries, transpose(keys, -1, -2), scale));
      const Tensor s =
          masked_fill_zero(scores, mask_tensor(mask, keys.size(2), scores.dtype(), scores.device(), first, true));
      if (!distances.defined()) return s;
      return masked_fill_zero(s, less(Tensor::zeros({1}, s.dtype(), s.device()), distances));
    }
  };
  static Tensor sums_down(const Tensor& masks) { return transpose(cumsum(transpose(masks, 2, 3)), 2, 3); }

  // Whose products are s', [B, 1 or H, tokens, d].
  struct Selector {
    Tensor queries, keys;
  };
  Selector selector(const AttentionInput& in) const {
    const Tensor& q = in.query(true);
    if (query_.defined()) {
      return {unsqueeze(linear(in.x, query_), 1), unsqueeze(in.keep("selector keys", linear(in.x, key_), 1), 1)};
    }
    const Tensor keys = in.keep("keys of scores", in.key(), 2);
    if (own_) return {q, repeat_kv(keys, q.size(1))};
    return {slice(q, 1, 0, 1), slice(keys, 1, 0, 1)};
  }

  // F [B, 1 or H, T, keys] while a text is generated: the masks of earlier tokens add up in the cache.
  static Tensor sums_with_earlier(const AttentionInput& in, const Tensor& masks) {
    const Tensor earlier = sums_down(masks) - masks, own = sum(masks, {2}, true);
    Tensor& kept = *in.cached_state("masks");
    if (!kept.defined()) {
      kept = own;
      return earlier;
    }
    const Tensor before = padded(kept, 3, 0, in.keys() - kept.size(3));
    kept = before + own;
    return earlier + before;
  }

  bool own_, bos_;
  Tensor query_, key_;  // W' [d, D], of the selector projection
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    selective, SelectiveOptions, Selective, "tokens mask earlier tokens for all later queries",
    "S_kj = relu(s'_kj) for 0 < j < k;  l_ij = s_ij - sum_{k<i} S_kj;  s' of the first head, of each head, or of a "
    "projection\n"
    "needs B T² numbers a layer, with selector = own B H T²;  in backward 3 times as much and B H T² for one "
    "layer at a time",
    "Selective attention: Leviathan et al. 2024, arXiv 2410.02703", .needs_head_width = true);
