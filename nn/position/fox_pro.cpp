// Forgetting attention with the parts of its Pro block (arXiv 2503.02130, section 4, FoX (Pro)), in this order:
//   shift of k and v        k_t <- a_t k_{t-1} + (1-a_t) k_t,  a_t = sigmoid(w.x_t) per head, k_{t-1} not shifted;
//   norm of q and k         RMSNorm per head, for k and v per key head;
//   forgetting attention    as fox;
//   norm of the output      RMSNorm per head;
//   output gate             times sigmoid(W_g x).
// The block's feed-forward part, SwiGLU, belongs to the model, not to the encoding: use --model.activation swiglu with
// --model.norm rms and a suitable width (models.md). In a combination, rotations follow shift and norm.

#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"
#include "nn/layers/layer_parts.hpp"

namespace tally {
namespace {

class FoxPro final : public Encoding {
 public:
  explicit FoxPro(const EncodingSetup& setup)
      : forget_(setup),
        key_shift_(setup, "key-shift", setup.key_heads),
        value_shift_(setup, "value-shift", setup.key_heads),
        query_norm_(setup, "query-norm", setup.heads),
        key_norm_(setup, "key-norm", setup.key_heads),
        output_norm_(setup, "output-norm", setup.heads),
        output_gate_(setup, "output-gate") {}

  void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const override {
    q = query_norm_(q);
    k = key_norm_(key_shift_(k, in));
    v = value_shift_(v, in);
  }
  void score(const AttentionInput& in, Score& score) const override { score.biases.emplace_back(forget_(in)); }
  Tensor finish(const Tensor& output, const AttentionInput& in) const override {
    return output_gate_.of_normed(output, output_norm_, in);
  }

 private:
  ForgetGates forget_;
  TokenShift key_shift_, value_shift_;
  HeadNorm query_norm_, key_norm_, output_norm_;
  OutputGate output_gate_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(fox_pro, NoOptions, FoxPro, "forget gates with shifted keys and values, norms and an output gate",
               "k_t <- a_t k_{t-1} + (1-a_t) k_t, k_{-1} = 0;  a_t = sigmoid(w_h.x_t);  v_t likewise with its own w_h\n"
               "q, k <- norm(q), norm(k);  norm(y) = w_h y / sqrt(mean(y²) + eps) per head, eps = 1e-6;  l_ij as fox\n"
               "o <- norm(o) sigmoid(W_g x)\n"
               "the published block has a SwiGLU MLP: add --model.activation swiglu --model.hidden F",
               "FoX (Pro): Lin et al. 2025, arXiv 2503.02130", .before_rotations = true);
