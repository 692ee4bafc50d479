// A program that uses tally as an installed package: a small transformer with CoPE learns to count the ones it has
// seen.
//   tokens  1 0 1 1 0 ...
//   targets 1 1 2 3 3 ...
// Exit status 0 when it has learned.
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/tensor.hpp"
#include "nn/encoding.hpp"
#include "nn/optim/optimizer.hpp"
#include "nn/transformer.hpp"

int main() {
  constexpr std::int64_t batch = 32, length = 8, steps = 200;

  tally::ModelOptions model_options;
  model_options.layers = 1;
  model_options.width = 32;
  model_options.heads = 2;
  tally::EncodingChoice encoding = tally::EncodingChoice::parse("cope");
  encoding.set_option("p-max", "8");
  tally::Transformer model(model_options, encoding, /*vocabulary=*/length + 1, /*max_length=*/length, /*seed=*/1);

  tally::OptimizerOptions optimizer_options;
  optimizer_options.lr = 1e-2;
  const auto optimizer = tally::Optimizer::make(optimizer_options, model.parameters());

  std::mt19937 random(1);
  const tally::Tensor mask = tally::Tensor::full({batch, length}, 1, tally::DType::boolean);
  double loss = 0;
  for (std::int64_t n = 1; n <= steps; ++n) {
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
      std::int32_t ones = 0;
      for (std::int64_t t = 0; t < length; ++t) {
        tokens.push_back(static_cast<std::int32_t>(random() % 2));
        ones += tokens.back();
        targets.push_back(ones);
      }
    }
    const tally::Tensor logits = model.forward(tally::Tensor::from(tokens, {batch, length}));
    const tally::Tensor mean_loss = tally::cross_entropy(logits, tally::Tensor::from(targets, {batch, length}), mask);
    model.clear_gradients();
    tally::backward(mean_loss);
    optimizer->step(n, optimizer_options.lr, /*gradient_scale=*/1);
    loss = mean_loss.item();
    if (n == 1 || n == steps) std::cout << "step " << n << ": loss " << loss << '\n';
  }
  return loss < 0.1 ? 0 : 1;
}
