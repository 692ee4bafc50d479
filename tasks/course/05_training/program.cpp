// Chapter 5: layers and training. A small network learns to tell two spirals apart.
#include <cmath>
#include <iostream>
#include <numbers>
#include <tally/tally.hpp>
#include <vector>

using tally::Tensor;

// Points of two spirals, f64 [2 count, 2], and the spiral of each, i32 [2 count].
struct Points {
  Tensor places, spirals;
};

Points make_spirals(int count) {
  std::vector<double> places;
  std::vector<std::int32_t> spirals;
  for (int n = 0; n < count; ++n) {
    const double radius = (n + 1.0) / count, angle = 3 * std::numbers::pi * radius;
    for (const int spiral : {0, 1}) {
      const double turned = angle + spiral * std::numbers::pi;
      places.insert(places.end(), {radius * std::cos(turned), radius * std::sin(turned)});
      spirals.push_back(spiral);
    }
  }
  return {Tensor::from(places, {2 * count, 2}), Tensor::from(spirals, {2 * count})};
}

double share_of_errors(const tally::Sequential& model, const Points& points) {
  const tally::NoGrad values_only;
  const Tensor found = argmax(model.forward(points.places)).to(tally::DType::i32);
  const auto right = points.spirals.to_vector<std::int32_t>(), answers = found.to_vector<std::int32_t>();
  int errors = 0;
  for (std::size_t n = 0; n < right.size(); ++n) errors += answers[n] != right[n];
  return static_cast<double>(errors) / static_cast<double>(right.size());
}

// The plane from -1 to 1 as the model divides it: '#' and '.'.
void draw(const tally::Sequential& model) {
  const tally::NoGrad values_only;
  for (int row = 0; row < 17; ++row) {
    std::vector<double> places;
    for (int column = 0; column < 33; ++column) places.insert(places.end(), {column / 16.0 - 1, 1 - row / 8.0});
    for (const std::int64_t spiral : argmax(model.forward(Tensor::from(places, {33, 2}))).to_vector<std::int64_t>())
      std::cout << (spiral == 1 ? '#' : '.');
    std::cout << '\n';
  }
}

int main() {
  const Points points = make_spirals(100);
  tally::Sequential model(tally::Initializer(/*seed=*/1, tally::StartValues::fan_in, tally::DType::f64));
  model.add<tally::Linear>(2, 32)
      .add(tally::tanh)
      .add<tally::Linear>(32, 32)
      .add(tally::tanh)
      .add<tally::Linear>(32, 2);

  tally::OptimizerOptions options;
  options.lr = 1e-2, options.schedule = "cosine", options.clip = 1;
  constexpr int steps = 400;
  const auto optimizer = tally::Optimizer::make(options, model, steps);
  for (int n = 1; n <= steps; ++n) {
    const Tensor loss = cross_entropy(model.forward(points.places), points.spirals);
    loss.backward();
    optimizer->step();
    if (n == 1 || n % 100 == 0) {
      std::cout << "step " << n << ": loss " << std::round(loss.item() * 1000) / 1000 << ", errors "
                << 100 * share_of_errors(model, points) << " %\n";
    }
  }
  draw(model);
  return 0;
}
