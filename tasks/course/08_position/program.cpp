// Chapter 8: where is a token? One small model with four position encodings learns to name the token before, and is
// tested on longer texts than it has seen.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/math/random.hpp"
#include "nn/optimizer.hpp"
#include "nn/transformer.hpp"

using tally::Tensor;

constexpr std::uint32_t vocabulary = 8;
constexpr std::int64_t trained_length = 16, longest = 64;

struct Texts {
  Tensor tokens, targets, mask;  // [count, length]
};

// Random tokens. The target of a token is the one before it; the first has none and is not counted.
Texts random_texts(tally::Rng& random, std::int64_t count, std::int64_t length) {
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t n = 0; n < count * length; ++n) {
    targets.push_back(tokens.empty() ? 0 : tokens.back());
    tokens.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
  }
  Tensor mask = Tensor::full({count, length}, 1, tally::DType::boolean);
  tally::slice(mask, 1, 0, 1).fill(0);
  return {Tensor::from(tokens, {count, length}), Tensor::from(targets, {count, length}), mask};
}

void train(tally::Transformer& model) {
  tally::OptimizerOptions options;
  options.lr = 1e-2;
  const auto optimizer = tally::Optimizer::make(options, model);
  tally::Rng random({.seed = 1});
  for (std::int64_t n = 1; n <= 130; ++n) {
    const Texts texts = random_texts(random, 8, trained_length);
    const Tensor loss = tally::cross_entropy(model.forward(texts.tokens), texts.targets, texts.mask);
    tally::backward(loss);
    optimizer->step();
  }
}

// Percentage of wrong answers from token `first` on.
double error_rate(tally::Transformer& model, std::int64_t length, std::int64_t first) {
  const tally::NoGrad no_grad;
  tally::Rng random({.seed = 2});
  const Texts texts = random_texts(random, 20, length);
  const std::vector<std::int64_t> best = tally::argmax(model.forward(texts.tokens)).to_vector<std::int64_t>();
  const std::vector<std::int32_t> targets = texts.targets.to_vector<std::int32_t>();
  int wrong = 0, counted = 0;
  for (std::size_t n = 0; n < best.size(); ++n) {
    if (static_cast<std::int64_t>(n) % length < first) continue;
    ++counted;
    wrong += best[n] != targets[n] ? 1 : 0;
  }
  return 100.0 * wrong / counted;
}

int main() {
  tally::ModelOptions options;
  options.layers = 1;
  options.width = 32;
  options.heads = 8;
  options.init = "fan-in";
  std::printf("wrong answers in percent\n           tokens 2-16  17-64\n");
  for (const char* name : {"none", "absolute", "alibi", "rope"}) {
    tally::Transformer model(options, tally::EncodingChoice::parse(name), vocabulary, longest, /*seed=*/1,
                             tally::DType::f64);
    train(model);
    std::printf("%-10s %8.0f %8.0f\n", name, error_rate(model, trained_length, 1),
                error_rate(model, longest, trained_length));
  }
  return 0;
}
