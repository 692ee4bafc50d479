#include "nn/transformer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "autograd/finite.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/allocator.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/mlp.hpp"
#include "nn/layers/norm.hpp"

namespace tally {

namespace {

// Adds the location in the model to the errors of a layer.
template <class F>
auto with_location(const std::string& location, F&& compute) {
  try {
    return compute();
  } catch (const NotFinite& error) {
    throw NotFinite(formatted("in {}: {}", location, error.what()));
  } catch (const TooLarge&) {
    throw;
  } catch (const Error& error) {
    throw Error(formatted("in {}: {}", location, error.what()));
  }
}

void check_tokens(const Tensor& tokens) {
  check(tokens.defined() && tokens.rank() == 2, "model", "tokens must be [batch, length]{}",
        tokens.defined() ? formatted(", got {}", tokens.shape()) : std::string());
}

// The parameters of encodings, named "position.<encoding>.<name>".
class Positions final : public Module {
 public:
  Tensor add(std::string_view name, Tensor value) {
    if (value.rank() >= 2) add_matmul_operand(value);
    return add_parameter(name, std::move(value));
  }
};

class Block final : public Module {
 public:
  Block(const Initializer& start, const ModelOptions& options)
      : post_norm_(options.norm_place == "post"),
        parallel_(options.residual == "parallel"),
        attention_norm_(start.at("attention_norm"), options.norm, options.width, options.norm_eps),
        attention_(start.at("attention"), options, residual_gain(options)),
        mlp_norm_(start.at("mlp_norm"), options.norm, options.width, options.norm_eps),
        mlp_(start.at("mlp"), options.width, options.width_of_hidden(), options.activation, options.dropout,
             residual_gain(options), biases(options)),
        attention_dropout_(start, "attention", options.dropout),
        mlp_dropout_(start, "mlp", options.dropout),
        location_(start.path("")) {
    add_child("attention_norm", attention_norm_);
    add_child("attention", attention_);
    add_child("position", positions_);
    add_child("mlp_norm", mlp_norm_);
    add_child("mlp", mlp_);
  }

  Positions& positions() { return positions_; }
  void set_encoding(LayerEncoding encoding) { encoding_ = std::move(encoding); }
  const LayerEncoding& encoding() const { return encoding_; }
  bool continues() const { return attention_.continues(encoding_); }

  // x [B, T, D] -> the same shape. Takes x by value so its buffer can be freed or reused in place once it is no longer
  // needed, and saved in bf16 for backward.
  Tensor forward(Tensor x, const ForwardContext& pass, const KVContext& earlier) const {
    // Each sublayer adds its result to the residual, after dropout if there is any.
    const auto attention = [&](Tensor input, Tensor residual) {  // NOLINT: is let go at its end
      return with_location(location_ + "attention", [&] {
        const bool drops = attention_dropout_.rate(pass) != 0;
        Tensor y = attention_.forward(input, encoding_, pass, earlier, drops ? Tensor() : std::move(residual));
        return drops ? residual + attention_dropout_(y, pass) : y;  // NOLINT(bugprone-use-after-move)
      });
    };
    const auto mlp = [&](Tensor input, Tensor residual) {
      return with_location(location_ + "mlp", [&] {
        const bool drops = mlp_dropout_.rate(pass) != 0;
        Tensor y = mlp_.forward(std::move(input), pass, drops ? Tensor() : std::move(residual));
        return drops ? residual + mlp_dropout_(y, pass) : y;  // NOLINT(bugprone-use-after-move)
      });
    };
    if (post_norm_) {
      x = attention_norm_.forward(attention(x, x));
      return mlp_norm_.forward(mlp(x, x));
    }
    const Tensor block_input = parallel_ ? x : Tensor();
    Tensor normed = attention_norm_.forward(x, attention_.input_precision(encoding_, pass, earlier));
    x = attention(std::move(normed), std::move(x));
    normed = mlp_norm_.forward(parallel_ ? block_input : x, OutputPrecision::matmul_input);
    return mlp(std::move(normed), std::move(x));
  }

 private:
  static WithBias biases(const ModelOptions& options) { return options.bias ? WithBias::yes : WithBias::no; }
  // Two projections per layer add to the residual stream: this keeps the variance of the sum from growing with depth.
  static double residual_gain(const ModelOptions& options) {
    return 1.0 / std::sqrt(2.0 * static_cast<double>(options.layers));
  }

  bool post_norm_, parallel_;
  Norm attention_norm_;
  Attention attention_;
  Positions positions_;
  Norm mlp_norm_;
  Mlp mlp_;
  Dropout attention_dropout_, mlp_dropout_;
  std::string location_;  // "blocks.2."
  LayerEncoding encoding_;
};

}  // namespace

struct Transformer::Parts {
  static Tied tied(const ModelOptions& options) {
    if (!options.tied) return Tied::no;
    return options.norm_place == "post" ? Tied::after_norms : Tied::yes;
  }
  Parts(const ModelOptions& options, std::int64_t vocabulary, const Initializer& start)
      : embedding(start.at("embedding"), vocabulary, options.width, tied(options)),
        embedding_dropout(start, "embedding", options.dropout) {
    if (options.final_norm) {
      norm = std::make_unique<Norm>(start.at("norm"), options.norm, options.width, options.norm_eps);
    }
    if (!options.tied) head = std::make_unique<Linear>(start.at("head"), options.width, vocabulary, WithBias::no);
  }

  // The encodings of all groups of heads, layer by layer.
  std::vector<const Encoding*> encodings() const {
    std::vector<const Encoding*> all;
    for (const auto& block : blocks) {
      for (const HeadGroup& group : block->encoding()) all.push_back(group.encoding.get());
    }
    return all;
  }
  std::int64_t most(std::int64_t (Encoding::*rows)() const) const {
    std::int64_t found = 0;
    for (const Encoding* encoding : encodings()) found = std::max(found, (encoding->*rows)());
    return found;
  }

  Embedding embedding;
  Dropout embedding_dropout;
  Positions positions;  // shared by all layers
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<Norm> norm;    // null without
  std::unique_ptr<Linear> head;  // null when tied
};

Transformer::Transformer(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                         std::int64_t max_length, std::uint64_t seed, DType dtype, Device device)
    : Transformer(options, encoding, vocabulary, max_length,
                  Initializer(seed, start_values_from_text(options.init), dtype, device)) {}

Transformer::Transformer(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                         std::int64_t max_length, const Initializer& start) {
  check_model(options, encoding);
  check(options.is_transformer(), "model", "the options are those of kind {}", options.kind);
  check(vocabulary >= 1, "model", "the vocabulary has {} symbols", vocabulary);
  check(max_length >= 1, "model", "the longest sequence has {} tokens", max_length);
  check(is_floating(start.dtype()), "model", "parameters are f32 or f64, not {}", start.dtype());

  parts_ = std::make_unique<Parts>(options, vocabulary, start);
  add_child("embedding", parts_->embedding);
  add_child("position", parts_->positions);

  std::map<std::string, Tensor, std::less<>> shared;
  EncodingSetup setup = EncodingSetup::of(options, max_length, start);
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string name = formatted("blocks.{}", layer);
    const Initializer block_start = start.at(name);
    auto block = std::make_unique<Block>(block_start, options);
    setup.layer = layer;
    setup.make_parameter = [&](std::string_view parameter, const Shape& shape, const Fill& fill, Scope scope) {
      if (scope == Scope::layer) {
        return block->positions().add(parameter, block_start.at("position").make(parameter, shape, fill));
      }
      if (const auto made = shared.find(parameter); made != shared.end()) {
        check(made->second.shape() == shape, "model",
              "position.{} is shared by all layers, but is {} before layer {} and {} there", parameter,
              made->second.shape(), layer, shape);
        return made->second;
      }
      const Tensor value = parts_->positions.add(parameter, start.at("position").make(parameter, shape, fill));
      return shared.emplace(parameter, value).first->second;
    };
    block->set_encoding(encoding.make(setup));
    add_child(name, *block);
    parts_->blocks.push_back(std::move(block));
  }
  if (parts_->norm != nullptr) add_child("norm", *parts_->norm);
  if (parts_->head != nullptr) add_child("head", *parts_->head);
}

Transformer::~Transformer() = default;

const Tensor& Transformer::head() const {
  return parts_->head != nullptr ? parts_->head->weight() : parts_->embedding.weight();
}

Tensor Transformer::hidden(const Tensor& tokens, const ForwardContext& pass) {
  return compute(tokens, pass, 0, nullptr);
}

Tensor Transformer::step(const Tensor& tokens, GenerationState& state) {
  const NoGrad no_grad;
  check_tokens(tokens);
  const auto& blocks = parts_->blocks;
  const bool goes_on = std::all_of(blocks.begin(), blocks.end(), [](const auto& block) { return block->continues(); });
  const Tensor all = state.tokens.defined() ? concat(std::vector<Tensor>{state.tokens, tokens}, 1) : tokens;
  const std::int64_t length = state.length + tokens.size(1);
  if (!goes_on) {
    const Tensor rows = slice(forward(all), 1, state.length, length);
    state = {length, {}, all};
    return rows;
  }
  const bool anew = state.length == 0 || same_up_to(state.length) < length;
  std::vector<KvCache> layers = state.layers;  // the state is as it was if this fails
  if (anew) layers.assign(blocks.size(), {});
  const Tensor x = compute(anew ? all : tokens, {}, anew ? 0 : state.length, &layers);
  const std::int64_t earlier = x.size(1) - tokens.size(1);
  const Tensor logits = linear(earlier > 0 ? slice(x, 1, earlier, x.size(1)) : x, head());
  const bool may_change = same_up_to(length) < Encoding::never;
  state = {length, std::move(layers), may_change ? all : Tensor()};
  return logits;
}

Tensor Transformer::compute(const Tensor& tokens, const ForwardContext& pass, std::int64_t first,
                            std::vector<KvCache>* caches) {
  check_tokens(tokens);
  TokenPositions at = pass.positions;
  if (!at.each.defined()) at.first = first;
  check_length(at.end > 0 ? at.end : first + tokens.size(1));
  check(!at.drawn.defined() || at.drawn.size(0) == tokens.size(1), "model", "{} positions for {} tokens",
        at.drawn.defined() ? at.drawn.size(0) : 0, tokens.size(1));

  std::vector<Tensor> operands = parts_->positions.matmul_operands();
  for (const auto& block : parts_->blocks) {
    for (const Tensor& operand : block->matmul_operands()) operands.push_back(operand);
  }
  const std::vector<Tensor> rounded = cache_operands(operands);

  Tensor x = with_location("embedding", [&] { return parts_->embedding.forward(tokens); });
  for (const HeadGroup& group : parts_->blocks.front()->encoding()) {
    if (at.read != nullptr && group.encoding->traits.embeds) *at.read = true;
    x = group.encoding->embed(x, at);
  }
  x = parts_->embedding_dropout(x, pass);
  for (std::size_t n = 0; n < parts_->blocks.size(); ++n) {
    x = parts_->blocks[n]->forward(std::move(x), pass, {first, caches != nullptr ? &(*caches)[n] : nullptr});
  }
  return parts_->norm != nullptr ? parts_->norm->forward(x) : x;
}

void Transformer::check_length(std::int64_t length) const {
  for (const Encoding* encoding : parts_->encodings()) encoding->check_length(length);
}

std::int64_t Transformer::same_up_to(std::int64_t length) const {
  std::int64_t least = Encoding::never;
  for (const Encoding* encoding : parts_->encodings()) least = std::min(least, encoding->same_up_to(length));
  return least;
}

std::int64_t Transformer::rows_by_end() const { return parts_->most(&Encoding::rows_by_end); }

std::int64_t Transformer::rows_by_position() const { return parts_->most(&Encoding::rows_by_position); }

const LayerEncoding& Transformer::encoding(std::int64_t layer) const {
  return parts_->blocks[static_cast<std::size_t>(layer)]->encoding();
}

bool Transformer::straight_through() const {
  return std::ranges::any_of(parts_->encodings(), [](const Encoding* one) { return one->traits.straight_through; });
}

bool Transformer::is_composed() const {
  return std::ranges::all_of(parts_->encodings(), [](const Encoding* one) { return one->traits.is_composed(); });
}

void Transformer::project_parameters() const {
  for (const Encoding* encoding : parts_->encodings()) encoding->project();
}

}  // namespace tally
