// A small network learns XOR. README.md of the project shows this program.
#include <iostream>
#include <tally/tally.hpp>
using namespace tally;

int main() {
  const Tensor x = Tensor::from({{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  const Tensor y = Tensor::from({{0}, {1}, {1}, {0}});
  Sequential model(Initializer(/*seed=*/1));
  model.add<Linear>(2, 16).add(gelu).add<Linear>(16, 1);
  OptimizerOptions options;
  options.lr = 0.1, options.schedule = "cosine", options.clip = 1;
  const auto optimizer = Optimizer::make(options, model, /*steps=*/100);
  for (int n = 0; n < 100; ++n) {
    mse(model.forward(x), y).backward();
    optimizer->step();  // follows the schedule, clips and clears the gradients
  }
  save(model, "xor.safetensors");
  std::cout << model.forward(x) << '\n';
}
