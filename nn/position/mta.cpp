// Multi-token attention (arXiv 2504.00927): the score of a pair depends on the scores of earlier queries and
// neighbouring keys, and heads are mixed.
//
//   s'_ij = sum_a sum_b K_h[a, b] s_{i-cq+1+a, j-(ck-1)/2+b}, a = 0..cq-1, b = 0..ck-1; s is 0 for masked pairs;
//
//   l^h = sum_g W[h, g] s'^g, with mix = both or before;
//
//   a = softmax of l; then the same sum with a separate K (after), and 0 for masked pairs;
//
//   a^h = sum_g a^g M[g, h] over the n heads of a group, with mix = both or after;
//
//   o_i = normed over each head (norm), then times sigmoid(w.o_i + c) (gate); weights of both are shared by the heads.
//
// K, W and M are initially the identity: without norm and gate this is plain attention. In a combination, s includes
// the terms of the others.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/composed.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"
#include "nn/layers/layer_parts.hpp"

namespace tally {
namespace {

constexpr std::int64_t least_block = 32;  // keys per matmul: small blocks waste little, large ones are fast
constexpr double norm_eps = 1e-5;

struct MtaOptions final : OptionsOf<MtaOptions> {
  std::int64_t queries = 6, keys = 11, group = 0;
  bool after = true, norm = true, gate = true;
  std::string mix = "both";

  void visit(OptionVisitor& visitor) override {
    visitor.integer("queries", queries, "cq, number of queries in a sum, the last of which is the pair's own", 1,
                    1 << 8);
    visitor.integer("keys", keys, "ck, number of keys in a sum, centred on the pair's own; odd", 1, (1 << 8) - 1);
    visitor.choice("mix", mix, {"both", "before", "after", "none"},
                   "heads are mixed before the softmax, after it, both, or not at all");
    visitor.only_with("mix", {"both", "after"});
    visitor.integer("group", group, "n, heads in a group that is mixed; 0: all heads", 0, 1 << 16);
    visitor.flag("after", after, "also sum weights over queries and keys, as scores are summed");
    visitor.flag("norm", norm, "each head's output is normed (RMSNorm)");
    visitor.flag("gate", gate, "each head's output is gated");
  }
  void validate() const override {
    check(keys % 2 == 1, "mta", "keys = {} must be odd: the pair's own key is in the middle", keys);
  }
  bool mixes_before() const { return mix == "both" || mix == "before"; }
  bool mixes_after() const { return mix == "both" || mix == "after"; }
};

// `count` matrices [rows, columns] with a single 1.
Fill ones_at(std::int64_t count, std::int64_t matrix, const std::vector<std::int64_t>& elements) {
  std::vector<double> values(static_cast<std::size_t>(count * matrix));
  for (std::int64_t n = 0; n < count; ++n) {
    for (const std::int64_t element : elements) values[static_cast<std::size_t>(n * matrix + element)] = 1;
  }
  return Fill::list(values);
}

Fill identities(std::int64_t count, std::int64_t size) {
  std::vector<std::int64_t> diagonal;
  for (std::int64_t n = 0; n < size; ++n) diagonal.push_back(n * (size + 1));
  return ones_at(count, size * size, diagonal);
}

// y_ij = sum_ab K_h[a, b] x_{i-cq+1+a, j-(ck-1)/2+b} for x [B, H, T, T] and K [H, cq, ck], x 0 outside. The keys are
// taken in blocks: the contribution of row a is a block, with the ck-1 keys around it, times a band matrix of K's row
// a. This costs 2 cq (block + ck-1) operations per pair, a few times the minimum, in large matmuls.
Tensor correlated(const Tensor& x, const Tensor& kernel) {
  const std::int64_t length = x.size(2), rows = kernel.size(1), around = kernel.size(2) - 1;
  const std::int64_t block = std::max(around, std::min(length, least_block)), blocks = (length + block - 1) / block;
  const std::int64_t behind = (blocks + 1) * block - length - around / 2;
  const Tensor high = padded(x, 2, rows - 1, 0), wide = padded(high, 3, around / 2, behind);
  const Shape split{x.size(0), x.size(1), high.size(2), blocks + 1, block};
  const Tensor by_block = reshape(wide, split);
  Tensor with_around = slice(by_block, 3, 0, blocks);
  if (around > 0) {
    const Tensor next = slice(slice(by_block, 3, 1, blocks + 1), 4, 0, around);
    with_around = concat(std::vector<Tensor>{with_around, next}, 4);
  }
  const Tensor lines = reshape(with_around, {x.size(0), x.size(1), high.size(2) * blocks, block + around});
  // [H, cq, block + ck-1, block]: row m, column n has K[a, m-n].
  const Tensor bands = slice(read_distance(unsqueeze(kernel, 2), block + around, false), 3, 0, block);
  Tensor y;
  for (std::int64_t a = 0; a < rows; ++a) {
    const Tensor term = matmul(slice(lines, 2, a * blocks, (a + length) * blocks), select(bands, 1, a));
    y = y.defined() ? y + term : term;
  }
  return slice(reshape(y, {x.size(0), x.size(1), length, blocks * block}), 3, 0, length);
}

// In each group of n heads, head h gets sum_g matrix[.., h, g] of head g: x [B, H, T, T], matrix [H/n, n, n].
Tensor mixed(const Tensor& x, const Tensor& matrix) {
  const Shape by_group{x.size(0), matrix.size(0), matrix.size(1), x.size(2) * x.size(3)};
  return reshape(matmul(matrix, reshape(x, by_group)), x.shape());
}

class Mta final : public Encoding {
 public:
  Mta(const EncodingSetup& setup, const MtaOptions& options) {
    const std::int64_t heads = setup.heads, queries = options.queries, keys = options.keys;
    const Fill own_pair = ones_at(heads, queries * keys, {(queries - 1) * keys + (keys - 1) / 2});
    kernel_ = setup.parameter("kernel", {heads, queries, keys}, own_pair);
    if (options.after) kernel_after_ = setup.parameter("kernel-after", {heads, queries, keys}, own_pair);
    if (options.mixes_before()) mix_ = setup.parameter("mix", {heads, heads}, identities(1, heads));
    if (options.mixes_after()) {
      const std::int64_t group = options.group == 0 ? heads : std::min(options.group, heads);
      check(heads % group == 0, "mta", "{} heads are no whole number of groups of {}", heads, group);
      mix_after_ = setup.parameter("mix-after", {heads / group, group, group}, identities(heads / group, group));
    }
    if (options.norm) check_normed_heads(setup, "mta");
    if (options.norm) norm_ = setup.parameter("norm.weight", {setup.head_width}, Fill::constant(1));
    if (!options.gate) return;
    const double deviation = 1.0 / std::sqrt(static_cast<double>(setup.width));
    gate_weight_ = setup.parameter("gate.weight", {1, setup.head_width}, Fill::normal(deviation));
    gate_bias_ = setup.parameter("gate.bias", {1}, Fill::constant(0));
  }

  Tensor weights(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const override {
    Tensor l = correlated(masked_fill_zero(logits, mask), kernel_);
    if (mix_.defined()) l = mixed(l, unsqueeze(mix_, 0));
    Tensor a = Encoding::weights(l, mask, in);
    if (kernel_after_.defined()) a = masked_fill_zero(correlated(a, kernel_after_), mask);
    return mix_after_.defined() ? mixed(a, transpose(mix_after_, 1, 2)) : a;
  }

  Tensor finish(const Tensor& output, const AttentionInput&) const override {
    const Tensor o = norm_.defined() ? rms_norm(output, norm_, norm_eps) : output;
    return gate_weight_.defined() ? o * sigmoid(linear(o, gate_weight_, gate_bias_)) : o;
  }

 private:
  Tensor kernel_, kernel_after_;    // K [H, cq, ck] of scores, of weights
  Tensor mix_, mix_after_;          // W [H, H], M [H/n, n, n]
  Tensor norm_;                     // [d]
  Tensor gate_weight_, gate_bias_;  // w [1, d], c [1]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    mta, MtaOptions, Mta, "scores and weights are summed over neighbouring queries, keys and heads",
    "s'_ij = sum_ab K_h[a, b] s_{i-cq+1+a, j-(ck-1)/2+b}, s = 0 for masked pairs;  l^h = sum_g W[h, g] s'^g\n"
    "a = softmax of l, summed likewise with another K;  a^h = sum_g a^g M[g, h], in groups of heads\n"
    "o_i <- RMSNorm of each head, times sigmoid(w.o_i + c);  K, W and M are initially the identity\n"
    "materialised: saves about 7 B H T² numbers a layer",
    "multi-token attention: Golovneva et al. 2025, arXiv 2504.00927");
