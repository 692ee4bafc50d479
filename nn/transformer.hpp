// The transformer: token embedding, blocks of causal attention and MLP with residuals, final norm, output projection.
//   pre-norm:  x += attention(norm(x));  x += mlp(norm(x))
// parallel:  x += attention(norm(x)) + mlp(norm(x)), with two separate norms
//   post-norm: x = norm(x + attention(x)); x = norm(x + mlp(x))
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/model.hpp"

namespace tally {

class Transformer final : public SequenceModel {
 public:
  // max_length: T_max of learned tables. Start values from `seed`. Throws Error for sizes that do not fit.
  Transformer(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
              std::int64_t max_length, std::uint64_t seed, DType dtype = DType::f32, Device device = {});
  // The same with parameters from `start`, which also determines type and device.
  Transformer(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
              std::int64_t max_length, const Initializer& start);
  ~Transformer() override;

  Tensor hidden(const Tensor& tokens, const ForwardContext& pass = {}) override;
  const Tensor& head() const override;
  // Computes only the rows of new tokens. Every step recomputes all rows if an encoding cannot do that (custom weights
  // or a custom attention), or if the model uses reference attention. A text that grows beyond an encoding's same_up_to
  // is recomputed once; rows up to there keep their values.
  Tensor step(const Tensor& tokens, GenerationState& state) override;
  void check_length(std::int64_t length) const override;
  std::int64_t rows_by_position() const override;
  // The largest value of its encodings: this number of rows at the end of a text change when the text continues.
  std::int64_t rows_by_end() const;
  void project_parameters() const override;

  // The encodings of a layer, counted from 0.
  const LayerEncoding& encoding(std::int64_t layer) const;
  // Whether an encoding defines some gradients by a rule of its own instead of the derivative
  // (EncodingTraits::straight_through).
  bool straight_through() const;
  // Whether all encodings need attention in composed form (EncodingTraits::is_composed).
  bool is_composed() const;
  // The smallest value of its encodings.
  std::int64_t same_up_to(std::int64_t length) const;

 private:
  // For tokens that begin at index `first`.
  Tensor compute(const Tensor& tokens, const ForwardContext& pass, std::int64_t first, std::vector<KvCache>* caches);

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tally
