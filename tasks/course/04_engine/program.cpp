// Chapter 4: the engine. The tape of chapter 3 for tensors, and an operation with a derivative of its own.
#include <iostream>
#include <tally/tally.hpp>
#include <vector>

using tally::Tensor;

// y = x^3, elementwise; d_x = 3 x^2 d_y.
Tensor cube(const Tensor& x) {
  Tensor y;
  {
    const tally::NoGrad values_only;  // the two multiplications themselves are not recorded
    y = x * x * x;
  }
  record("cube", y, {x}, [x = tally::Saved("cube", x)](const Tensor& d_y, tally::Gradients& d) {
    d.set(0, multiply(square(x.get()), 3) * d_y);
  });
  return y;
}

// The same with a mistake: d_x = 2 x^2 d_y.
Tensor wrong_cube(const Tensor& x) {
  Tensor y;
  {
    const tally::NoGrad values_only;
    y = x * x * x;
  }
  record("wrong_cube", y, {x}, [x = tally::Saved("wrong_cube", x)](const Tensor& d_y, tally::Gradients& d) {
    d.set(0, multiply(square(x.get()), 2) * d_y);
  });
  return y;
}

void report(const char* name, Tensor (*operation)(const Tensor&), const Tensor& point) {
  const auto of_inputs = [&](const std::vector<Tensor>& inputs) { return operation(inputs[0]); };
  const tally::GradcheckResult result = tally::gradcheck(of_inputs, {point});
  std::cout << name << (result.ok ? ": right" : ": wrong: " + result.text) << "\n";
}

int main() {
  // A layer of two neurons: y = tanh(x w + b), and the sum of all y as the loss.
  Tensor w = Tensor::from({{0.5, -1.0}, {0.25, 2.0}}, tally::DType::f64);
  Tensor b = Tensor::from({0.1, -0.2}, tally::DType::f64);
  w.set_requires_grad();
  b.set_requires_grad();
  const Tensor x = Tensor::from({{1, 2}, {-1, 0.5}, {0, 1}}, tally::DType::f64);

  std::cout << "nodes before: " << tally::live_nodes() << "\n";
  const Tensor loss = sum(tanh(add(matmul(x, w), b)));
  std::cout << "nodes recorded: " << tally::live_nodes() << "\nloss: " << loss << "\n";
  loss.backward();
  std::cout << "gradient of w:\n" << w.grad() << "\ngradient of b: " << b.grad() << "\n";

  // A second backward adds to the gradients of leaves: gradients of several batches accumulate.
  sum(tanh(add(matmul(x, w), b))).backward();
  std::cout << "after a second pass: " << b.grad() << "\n\n";

  // The saved activations must not change before backward has run. The engine notices.
  Tensor input = Tensor::ones({2});
  input.set_requires_grad();
  const Tensor y = cube(input);
  input.fill(5);
  try {
    sum(y).backward();
  } catch (const tally::Error& error) {
    std::cout << error.what() << "\n\n";
  }

  // Every operation is compared with central differences.
  const Tensor point = Tensor::from({-1.5, 0.5, 2.0}, tally::DType::f64);
  report("cube", cube, point);
  report("wrong_cube", wrong_cube, point);
  return 0;
}
