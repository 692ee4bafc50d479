// A bias of the distance that each token mixes from learned curves (Inkling, open weights of July 2026; no paper.
// Source: huggingface/transformers, models/inkling/modular_inkling.py, class InklingRelativeLogits).
//   r_i = W_r x_i, w numbers per head;  l_ij = s_ij + r_i.e[i-j] for i-j < E, else s_ij
//   e [E, w], one bank for all heads of a layer
// Inkling has no other positions. These options add the other parts of its attention layer:
//   conv-size = 4         k, v: y_t = x_t + sum_{m<4} c_m x_{t-m} per channel
//   qk-norm               q, k: y / sqrt(mean(y²) + 1e-6) times a weight [d] for all heads; follows the convolution
//   score-scale = d       s_ij = q_i.k_j / d
//   log-length = n0       l_ij = τ_i (s_ij + r_i.e[i-j]),  τ_i = 1 + α ln max((i+1) / n0, 1), without an attention mask
//
// τ_i multiplies q_i and r_i, so attention stays fused, and the biases of other encodings are not multiplied. Inkling
// also has convolutions after attention and after the MLP. They belong to the model and are missing here.
#include <algorithm>
#include <cmath>
#include <string>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/layers/layer_parts.hpp"

namespace tally {
namespace {

struct RelativeBankOptions final : OptionsOf<RelativeBankOptions> {
  std::int64_t width = 16;
  std::int64_t extent = 1024;
  std::string score_scale = "sqrt-d";
  std::int64_t log_length = 0;
  double log_scale = 0.1;
  bool qk_norm = false;
  std::int64_t conv_size = 0;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("width", width, "w, number of curves that a token mixes", 1, 1 << 12);
    visitor.integer("extent", extent, "E, distances with a bias; it is 0 from E on", 1, 1 << 20);
    visitor.choice("score-scale", score_scale, {"sqrt-d", "d"}, "divisor of q.k; d as in Inkling");
    visitor.integer("log-length", log_length, "n0, text length from which logits grow; 0: they do not", 0, 1 << 30);
    visitor.real("log-scale", log_scale, "for log-length: α, growth of the logits with ln(i / n0)", above(0), 100);
    visitor.flag("qk-norm", qk_norm, "RMSNorm of q and k over each head, with one weight for all heads");
    visitor.integer("conv-size", conv_size, "width in tokens of the convolutions of k and v; 0: none", 0, 64);
  }
  void validate() const override {
    check(log_length > 0 || log_scale == RelativeBankOptions().log_scale, "relative-bank",
          "log-scale = {} has no effect with log-length = 0; it is for log-length above 0", log_scale);
  }
};

class RelativeBank final : public Encoding {
 public:
  RelativeBank(const EncodingSetup& setup, const RelativeBankOptions& options)
      : heads_(setup.heads),
        log_length_(static_cast<double>(options.log_length)),
        log_scale_(options.log_scale),
        divides_by_d_(options.score_scale == "d") {
    const Fill small = Fill::normal(0.02), one = Fill::constant(1);
    mix_ = setup.linear_weight("mix.weight", heads_ * options.width);
    bank_ = setup.parameter("bank", {options.extent, options.width}, small);
    if (options.conv_size > 0) {
      const Shape taps{setup.key_heads, setup.head_width, options.conv_size};
      key_conv_ = setup.parameter("key-conv.weight", taps, small);
      value_conv_ = setup.parameter("value-conv.weight", taps, small);
    }
    if (!options.qk_norm) return;
    check_normed_heads(setup, "relative-bank");
    query_norm_ = setup.parameter("query-norm.weight", {setup.head_width}, one);
    key_norm_ = setup.parameter("key-norm.weight", {setup.head_width}, one);
  }

  std::int64_t rows_by_position() const override { return bank_.size(0); }

  void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const override {
    if (key_conv_.defined()) {
      k = k + convolved(in.keep("keys of the convolution", k, 2), key_conv_, k.size(2));
      v = v + convolved(in.keep("values of the convolution", v, 2), value_conv_, v.size(2));
    }
    if (query_norm_.defined()) {
      q = rms_norm(q, query_norm_);
      k = rms_norm(k, key_norm_);
    }
    if (const Tensor factor = factor_of(in); factor.defined()) q = q * factor;
  }

  void score(const AttentionInput& in, Score& score) const override {
    Tensor mix = split_heads(linear(in.x, mix_), heads_);  // r [B, H, T, w]
    if (const Tensor factor = factor_of(in); factor.defined()) mix = mix * factor;
    // ToeplitzProduct multiplies by 1/sqrt(d), which Inkling does not.
    const Tensor curves = slice(bank_, 0, 0, std::min(in.keys(), bank_.size(0))) / in.scale;
    score.biases.push_back(ToeplitzProduct{mix, unsqueeze(unsqueeze(curves, 0), 0)});
    if (divides_by_d_) score.factor *= in.scale;
  }

 private:
  // τ [T, 1]; undefined: 1
  Tensor factor_of(const AttentionInput& in) const {
    if (log_length_ == 0 || !in.mask.is_causal_only()) return {};
    const Tensor log_count = in.keys_seen([](std::int64_t n) { return std::log(static_cast<double>(n)); });
    return unsqueeze(relu(log_count - std::log(log_length_)) * log_scale_ + 1.0, 1);
  }

  std::int64_t heads_;
  double log_length_, log_scale_;  // n0, α
  bool divides_by_d_;
  Tensor mix_, bank_;             // W_r [H w, D], e [E, w]
  Tensor key_conv_, value_conv_;  // c [G, d, taps]
  Tensor query_norm_, key_norm_;  // [d]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    relative_bank, RelativeBankOptions, RelativeBank, "each token mixes learned curves of the distance",
    "r_i = W_r x_i per head;  l_ij = s_ij + r_i.e[i-j] for i-j < E, else s_ij;  e [E, w]\n"
    "Inkling: conv-size = 4, qk-norm, score-scale = d, log-length;  k, v: y_t = x_t + sum_m c_m x_{t-m}\n"
    "log-length = n0: l_ij = τ_i (s_ij + r_i.e[i-j]);  τ_i = 1 + α ln max((i+1) / n0, 1), only without a mask\n"
    "on a GPU needs B H T min(T, E) numbers a layer",
    "no paper; Inkling (Thinking Machines 2026), huggingface/transformers, models/inkling", .before_rotations = true,
    .also_called = "inkling");
