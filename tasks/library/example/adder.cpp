// A custom model learns to add two digits. Exit status 0 if it has learned all 100 sums.
#include <iostream>
#include <tally/tally.hpp>
#include <vector>

using namespace tally;

class Adder : public Module {
 public:
  explicit Adder(const Initializer& start) : digits_(start.at("digits"), 10, 16), layers_(start.at("layers")) {
    layers_.add<Linear>(32, 64).add(relu).add<Linear>(64, 19);
    add_child("digits", digits_);
    add_child("layers", layers_);
  }
  Tensor forward(const Tensor& pairs) const {  // i32 [B, 2] -> logits of the sum [B, 19]
    return layers_.forward(reshape(digits_.forward(pairs), {pairs.size(0), 32}));
  }

 private:
  Embedding digits_;
  Sequential layers_;
};

int main() {
  std::vector<std::int32_t> digits, sums;
  for (int n = 0; n < 100; ++n) {
    digits.insert(digits.end(), {n / 10, n % 10});
    sums.push_back(n / 10 + n % 10);
  }
  const Tensor pairs = Tensor::from(digits, {100, 2}), targets = Tensor::from(sums, {100});
  Adder model(Initializer(/*seed=*/1));
  OptimizerOptions options;
  options.lr = 1e-2, options.schedule = "cosine", options.clip = 1;
  const auto optimizer = Optimizer::make(options, model, /*steps=*/200);
  for (int n = 1; n <= 200; ++n) {
    const Tensor loss = cross_entropy(model.forward(pairs), targets);
    loss.backward();
    const double norm = optimizer->step();
    if (n % 50 == 0) std::cout << "step " << n << ": loss " << loss << ", gradient norm " << norm << '\n';
  }
  save(model, "adder.safetensors");
  Adder loaded(Initializer(/*seed=*/2));
  load(loaded, "adder.safetensors");
  const NoGrad no_grad;  // only values from here on
  std::cout << "3+4 8+9 = " << argmax(loaded.forward(Tensor::from({{3, 4}, {8, 9}}, DType::i32))) << '\n';
  return argmax(loaded.forward(pairs)).to(DType::i32).to_vector<std::int32_t>() == sums ? 0 : 1;
}
