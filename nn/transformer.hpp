// The transformer: token embedding, blocks of causal attention and MLP with residuals, final norm, output projection.
//   pre-norm:  x += attention(norm(x));  x += mlp(norm(x))
//   parallel:  x += attention(norm(x)) + mlp(norm(x)), each with a norm of its own
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
  // The same with parameters that `start` gives; their type and device are its own.
  Transformer(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
              std::int64_t max_length, const Initializer& start);
  ~Transformer() override;

  Tensor hidden(const Tensor& tokens, const Pass& pass = {}) override;
  const Tensor& head() const override;
  // Computes only the rows of new tokens. If an encoding cannot do that (custom weights or a whole custom attention) or
  // the model's attention is in composed form, every step recomputes all rows. A text that grows beyond an encoding's
  // same_up_to is recomputed once; rows up to there keep their values.
  Tensor step(const Tensor& tokens, GenerationState& state) override;
  void check_length(std::int64_t length) const override;
  std::int64_t rows_by_position() const override;
  // The most of all its encodings': so many rows at the end of a text are others where it goes on.
  std::int64_t rows_by_end() const;
  void project_parameters() const override;

  // What acts on a layer, from 0.
  const LayerEncoding& encoding(std::int64_t layer) const;
  // Whether some gradients follow a rule of an encoding's own and are no derivatives
  // (EncodingTraits::straight_through).
  bool straight_through() const;
  // The least of all its encodings'.
  std::int64_t same_up_to(std::int64_t length) const;

 private:
  // Of tokens that begin at index `first`.
  Tensor compute(const Tensor& tokens, const Pass& pass, std::int64_t first, std::vector<KvCache>* caches);

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tally
