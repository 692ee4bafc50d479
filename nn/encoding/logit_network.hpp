// A small network over the heads, on the logits of a pair (DAPE, arXiv 2405.14722) or of a pair and its neighbours
// along the keys (DAPE-V2, arXiv 2410.04798). With s the logits that come in and b a bias of distance, both vectors
// over the heads, * a matmul or a convolution along the keys:
//   l = s + b + W2 * leaky(W1 * [s ; b] + b1) + b2,  leaky(x) = x for x > 0, else slope x.
// Masked pairs have s = b = 0, so that no row depends on future tokens. s, b and the hidden layer are padded with zeros
// before key 0. After the last key of a row the hidden layer keeps its value there, which is not 0, in the last row of
// a text too. So a row does not depend on the length, unless the hidden layer ends with the text. Saves about
// (N + (K + 1) H) T² numbers per sequence for backward, with a kernel of K keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "nn/encoding/encoding.hpp"

namespace tally {

struct LogitNetworkOptions {
  std::int64_t hidden = 32;
  double slope = 0.01;

  // Options "hidden" and "slope".
  void visit(OptionVisitor& visitor);
};

// Parameters: hidden.weight [N, C] or [N, C, kernel], hidden.bias [N], output.weight [H, N] or [H, N, kernel],
// output.bias [H], uniform within 1/sqrt(inputs). C is H, or 2 H with a bias, s first. The bias has parameters
// bias.<name>.
class LogitNetwork : public Encoding {
 public:
  // bias: the name of an encoding whose bias depends only on the distance, or "none". kernel: width of a convolution,
  // odd; without it, each pair is separate. ends_with_text: the hidden layer is 0 after the last key of the text.
  LogitNetwork(const EncodingSetup& setup, const LogitNetworkOptions& options, const std::string& bias,
               std::optional<std::int64_t> kernel = {}, bool ends_with_text = false);
  std::int64_t rows_by_end() const override { return ends_with_text_ ? kernel_ / 2 : 0; }
  void project() const override;
  Tensor weights(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const override;

 private:
  // logits [B, H, T, T] and the attention mask -> l; masked entries are meaningless
  Tensor changed(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const;
  Tensor bias_of(const Tensor& mask, const AttentionInput& in) const;  // b [1, H, T, T], or undefined

  double slope_;
  std::int64_t kernel_;
  bool ends_with_text_;
  std::unique_ptr<Encoding> bias_;
  Tensor hidden_weight_, hidden_bias_;  // W1, b1
  Tensor output_weight_, output_bias_;  // W2, b2
};

}  // namespace tally
