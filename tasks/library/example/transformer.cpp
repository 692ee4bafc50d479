// A small transformer with RoPE learns to repeat the token before. Exit status 0 if it has learned.
//   tokens   3 1 4 1 5 ...
//   targets  - 3 1 4 1 ...
#include <iostream>
#include <random>
#include <tally/tally.hpp>
#include <vector>

using namespace tally;

int main() {
  constexpr std::int64_t batch = 32, length = 16, vocabulary = 8, steps = 200;

  ModelOptions model_options;
  model_options.layers = 1, model_options.width = 32, model_options.heads = 2;
  const EncodingChoice rope = encoding("rope", {{"base", 100}});
  Transformer model(model_options, rope, vocabulary, length, /*seed=*/1);

  OptimizerOptions options;
  options.lr = 1e-2, options.warmup = 10, options.clip = 1;
  const auto optimizer = Optimizer::make(options, model);

  std::mt19937 random(1);
  // No token comes before the first one: it does not count.
  const Tensor mask =
      concat({Tensor::zeros({batch, 1}, DType::boolean), Tensor::ones({batch, length - 1}, DType::boolean)}, 1);
  double loss = 0;
  for (std::int64_t n = 1; n <= steps; ++n) {
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t element = 0; element < batch * length; ++element) {
      targets.push_back(tokens.empty() ? 0 : tokens.back());
      tokens.push_back(static_cast<std::int32_t>(random() % vocabulary));
    }
    const Tensor logits = model.forward(Tensor::from(tokens, {batch, length}));
    const Tensor mean_loss = cross_entropy(logits, Tensor::from(targets, {batch, length}), mask);
    mean_loss.backward();
    optimizer->step();
    loss = mean_loss.item();
    if (n % 50 == 0) std::cout << "step " << n << ": loss " << loss << '\n';
  }
  return loss < 0.1 ? 0 : 1;
}
