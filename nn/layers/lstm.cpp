#include "nn/layers/lstm.hpp"

#include <string>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/containers.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"

namespace tally {
namespace {

class LstmLayer final : public Module {
 public:
  LstmLayer(const Initializer& start, const ModelOptions& options)
      : input_(start.at("input"), options.width, 4 * options.width, options.bias ? WithBias::yes : WithBias::no),
        recurrent_(start.at("recurrent"), options.width, 4 * options.width, WithBias::no),
        dropout_(start, "output", options.dropout) {
    add_child("input", input_);
    add_child("recurrent", recurrent_);
  }

  // x [B, T, D] -> the same shape. All inputs share one matmul; only the matmuls with h depend on each other.
  Tensor forward(const Tensor& x, const ForwardContext& pass, KvCache* earlier) const {
    const bool begins = earlier == nullptr || earlier->empty();
    const Tensor zeros = begins ? Tensor::zeros({x.size(0), x.size(2)}, x.dtype(), x.device()) : Tensor();
    const LstmSteps steps =
        lstm(input_.forward(x), recurrent_.weight(), begins ? zeros : earlier->at("hidden").tensor(),
             begins ? zeros : earlier->at("cell").tensor());
    if (earlier != nullptr && x.size(1) > 0) {
      (*earlier)["hidden"].state() = steps.hidden.detached_select(1, x.size(1) - 1).clone();
      (*earlier)["cell"].state() = steps.cells.detached_select(1, x.size(1) - 1).clone();
    }
    return dropout_(steps.hidden, pass);
  }

 private:
  Linear input_, recurrent_;  // recurrent_: U, of the previous h
  Dropout dropout_;
};

}  // namespace

struct Lstm::Parts {
  Parts(const ModelOptions& options, std::int64_t vocabulary, const Initializer& start)
      : embedding(start.at("embedding"), vocabulary, options.width, options.tied ? Tied::yes : Tied::no),
        embedding_dropout(start, "embedding", options.dropout),
        layers(start.at("layers")) {
    for (std::int64_t n = 0; n < options.layers; ++n) layers.add(options);
    if (!options.tied) head = std::make_unique<Linear>(start.at("head"), options.width, vocabulary, WithBias::no);
  }

  Embedding embedding;
  Dropout embedding_dropout;
  ModuleList<LstmLayer> layers;
  std::unique_ptr<Linear> head;  // null when tied
};

Lstm::Lstm(const ModelOptions& options, std::int64_t vocabulary, const Initializer& start) {
  options.validate();
  check(vocabulary >= 1, "model", "the vocabulary has {} symbols", vocabulary);
  check(is_floating(start.dtype()), "model", "parameters are f32 or f64, not {}", start.dtype());
  parts_ = std::make_unique<Parts>(options, vocabulary, start);
  add_child("embedding", parts_->embedding);
  add_child("layers", parts_->layers);
  if (parts_->head != nullptr) add_child("head", *parts_->head);
}

Lstm::~Lstm() = default;

const Tensor& Lstm::head() const {
  return parts_->head != nullptr ? parts_->head->weight() : parts_->embedding.weight();
}

Tensor Lstm::hidden(const Tensor& tokens, const ForwardContext& pass) { return compute(tokens, pass, nullptr); }

Tensor Lstm::step(const Tensor& tokens, GenerationState& state) {
  const NoGrad no_grad;
  std::vector<KvCache> layers = state.layers;  // on failure the state is unchanged
  layers.resize(static_cast<std::size_t>(parts_->layers.size()));
  const Tensor logits = linear(compute(tokens, {}, &layers), head());
  state.layers = std::move(layers);
  state.length += tokens.size(1);
  return logits;
}

Tensor Lstm::compute(const Tensor& tokens, const ForwardContext& pass, std::vector<KvCache>* layers) {
  check(tokens.defined() && tokens.rank() == 2, "model", "tokens must be [batch, length]{}",
        tokens.defined() ? formatted(", got {}", tokens.shape()) : std::string());
  Tensor x = parts_->embedding_dropout(parts_->embedding.forward(tokens), pass);
  for (std::int64_t n = 0; n < parts_->layers.size(); ++n) {
    x = parts_->layers[n].forward(x, pass, layers != nullptr ? &(*layers)[static_cast<std::size_t>(n)] : nullptr);
  }
  return x;
}

}  // namespace tally
