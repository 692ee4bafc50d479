// A recurrent model: token embedding, layers of LSTM one on top of the other, output projection.
//   (i, f, o) = sigmoid, g = tanh of W x_t + b + U h_{t-1};  c_t = f c_{t-1} + i g;  h_t = o tanh(c_t)
// Hochreiter & Schmidhuber 1997; forget gate: Gers, Schmidhuber & Cummins 2000. With one layer it is the anchor of
// flip-flop (Liu et al. 2023, arXiv 2306.00946): it easily solves a task that attention finds hard.
#pragma once

#include <cstdint>
#include <memory>

#include "nn/model.hpp"

namespace tally {

// Parameters: embedding.weight [V, D]; for layer N layers.N.input.weight [4D, D] (W), layers.N.input.bias [4D] (b) and
// layers.N.recurrent.weight [4D, D] (U), in blocks of D rows for i, f, g, o; head.weight [V, D], absent when tied.
// PyTorch has two biases, but uses only their sum.
class Lstm final : public SequenceModel {
 public:
  // Throws Error for sizes that do not fit.
  Lstm(const ModelOptions& options, std::int64_t vocabulary, const Initializer& start);
  ~Lstm() override;

  Tensor hidden(const Tensor& tokens, const ForwardContext& pass = {}) override;
  const Tensor& head() const override;
  // Continues from h and c of the last token: a step costs the same at any length.
  Tensor step(const Tensor& tokens, GenerationState& state) override;

 private:
  // layers: the state before and after each layer; null at the beginning of a text.
  Tensor compute(const Tensor& tokens, const ForwardContext& pass, std::vector<KvCache>* layers);

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tally
