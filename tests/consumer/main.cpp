// A program that uses tally as an installed package: a small transformer with RoPE learns to say the token before.
//   tokens   3 1 4 1 5 ...
//   targets  - 3 1 4 1 ...
// Exit status 0 when it has learned.
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/tensor.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/optimizer.hpp"
#include "nn/transformer.hpp"

int main() {
  constexpr std::int64_t batch = 32, length = 16, vocabulary = 8, steps = 200;

  tally::ModelOptions model_options;
  model_options.layers = 1;
  model_options.width = 32;
  model_options.heads = 2;
  tally::EncodingChoice encoding = tally::EncodingChoice::parse("rope");
  encoding.set_option("base", "100");
  tally::Transformer model(model_options, encoding, vocabulary, length, /*seed=*/1);

  tally::OptimizerOptions optimizer_options;
  optimizer_options.lr = 1e-2;
  const auto optimizer = tally::Optimizer::make(optimizer_options, model.parameters());

  std::mt19937 random(1);
  tally::Tensor mask = tally::Tensor::full({batch, length}, 1, tally::DType::boolean);
  mask.slice_view(1, 0, 1).fill(0);  // nothing stands before the first token
  double loss = 0;
  for (std::int64_t n = 1; n <= steps; ++n) {
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t element = 0; element < batch * length; ++element) {
      targets.push_back(tokens.empty() ? 0 : tokens.back());
      tokens.push_back(static_cast<std::int32_t>(random() % vocabulary));
    }
    const tally::Tensor logits = model.forward(tally::Tensor::from(tokens, {batch, length}));
    const tally::Tensor mean_loss = tally::cross_entropy(logits, tally::Tensor::from(targets, {batch, length}), mask);
    model.clear_gradients();
    tally::backward(mean_loss);
    optimizer->step(n, optimizer_options.lr, /*gradient_scale=*/1);
    loss = mean_loss.item();
    if (n % 50 == 0) std::cout << "step " << n << ": loss " << loss << '\n';
  }
  return loss < 0.1 ? 0 : 1;
}
