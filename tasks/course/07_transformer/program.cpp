// Chapter 7: a transformer. Its parameters, counted twice, and generation with and without a cache of keys and values.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/math/random.hpp"
#include "nn/optimizer.hpp"
#include "nn/transformer.hpp"

using tally::Tensor;

constexpr std::int64_t vocabulary = 10, length = 12, batch = 16;

// Sequences of digits with a constant step: 3 5 7 9 1 3 ... Returns length + 1 tokens for each.
Tensor sequences(tally::Rng& random) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t n = 0; n < batch; ++n) {
    const std::uint32_t first = random.below(10), step = 1 + random.below(4);
    for (std::uint32_t t = 0; t <= length; ++t) tokens.push_back(static_cast<std::int32_t>((first + t * step) % 10));
  }
  return Tensor::from(tokens, {batch, length + 1});
}

void train(tally::Transformer& model) {
  tally::OptimizerOptions options;
  options.lr = 5e-3;
  const auto optimizer = tally::Optimizer::make(options, model);
  tally::Rng random({.seed = 1});
  Tensor mask = Tensor::full({batch, length}, 1, tally::DType::boolean);
  tally::slice(mask, 1, 0, 1).fill(0);  // one digit does not determine the step
  for (std::int64_t n = 1; n <= 120; ++n) {
    const Tensor tokens = sequences(random);
    const Tensor inputs = tally::slice(tokens, 1, 0, length), targets = tally::slice(tokens, 1, 1, length + 1);
    const Tensor loss = tally::cross_entropy(model.forward(inputs), targets, mask);
    tally::backward(loss);
    optimizer->step();
    if (n == 1 || n == 120) std::printf("step %d: loss %.1f\n", static_cast<int>(n), loss.item());
  }
}

int main() {
  tally::ModelOptions options;
  options.layers = 2;
  options.width = 32;
  options.heads = 4;
  tally::Transformer model(options, tally::EncodingChoice::parse("rope"), vocabulary, /*max_length=*/64, /*seed=*/1,
                           tally::DType::f64);

  for (const auto& [name, tensor] : model.parameters()) {
    if (name.find("blocks.1.") == 0) continue;  // the same again
    std::printf("%-32s %-9s %5d\n", name.c_str(), tally::to_text(tensor.shape()).c_str(),
                static_cast<int>(tensor.numel()));
  }
  const std::int64_t V = vocabulary, D = options.width, L = options.layers;
  const std::int64_t attention = 4 * (D * D + D), mlp = (4 * D * D + 4 * D) + (4 * D * D + D), norms = 2 * 2 * D;
  const std::int64_t by_hand = V * D + L * (attention + mlp + norms) + 2 * D + V * D;
  std::printf("parameters: %d by hand, %d by the program\n\n", static_cast<int>(by_hand),
              static_cast<int>(model.parameter_count()));

  train(model);

  // Eight digits after a prompt, by the cache; at each step the whole pass computes the same logits again.
  std::vector<std::int32_t> text{3, 5, 7};
  tally::GenerationState state;
  Tensor news = Tensor::from(text, {1, 3});
  std::int64_t rows_by_cache = 0, rows_by_whole_pass = 0;
  double largest = 0;
  for (int n = 0; n < 8; ++n) {
    const Tensor logits = model.step(news, state);
    const Tensor last = tally::select(logits, 1, logits.size(1) - 1);  // [1, V]
    const Tensor all = model.forward(Tensor::from(text, {1, std::ssize(text)}));
    const Tensor difference = tally::abs(last - tally::select(all, 1, all.size(1) - 1));
    largest = std::max(largest, tally::max(tally::reshape(difference, {V}), 0).item());
    rows_by_cache += news.size(1);
    rows_by_whole_pass += all.size(1);
    text.push_back(static_cast<std::int32_t>(tally::argmax(last).item()));
    news = Tensor::from(std::vector<std::int32_t>{text.back()}, {1, 1});
  }
  for (const std::int32_t digit : text) std::printf("%d ", digit);
  std::printf("\nrows computed: %d with the cache, %d without; the logits %s\n", static_cast<int>(rows_by_cache),
              static_cast<int>(rows_by_whole_pass), largest < 1e-10 ? "agree" : "differ");
  return 0;
}
