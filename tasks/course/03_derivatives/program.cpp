// Chapter 3: derivatives by hand. A tape of numbers that differentiates any formula written with it.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

// One computed number: its value, its two inputs, and the derivatives of this step by them.
struct Entry {
  std::string text;
  double value;
  std::size_t inputs[2];
  double slopes[2];
  double gradient = 0;
};
std::vector<Entry> tape;

// A number on the tape.
struct Number {
  std::size_t index;
  double value() const { return tape[index].value; }
  double gradient() const { return tape[index].gradient; }
};

// Appends an entry. A step with one input has a second slope of 0.
Number append(std::string text, double value, Number a, double slope_a, Number b, double slope_b) {
  tape.push_back({std::move(text), value, {a.index, b.index}, {slope_a, slope_b}});
  return {tape.size() - 1};
}

Number variable(const char* name, double value) { return append(name, value, {0}, 0, {0}, 0); }
Number operator+(Number a, Number b) { return append("a + b", a.value() + b.value(), a, 1, b, 1); }
Number operator*(Number a, Number b) { return append("a * b", a.value() * b.value(), a, b.value(), b, a.value()); }
Number tanh(Number a) {
  const double y = std::tanh(a.value());
  return append("tanh a", y, a, 1 - y * y, a, 0);
}

// Sets all gradients: the derivatives of y by every number on the tape. The chain rule, from the last entry to the
// first.
void backward(Number y) {
  for (Entry& entry : tape) entry.gradient = 0;
  tape[y.index].gradient = 1;
  for (std::size_t n = y.index + 1; n-- > 0;) {
    for (int side = 0; side < 2; ++side) tape[tape[n].inputs[side]].gradient += tape[n].gradient * tape[n].slopes[side];
  }
}

Number neuron(Number w, Number x, Number b) { return tanh(w * x + b); }

int main() {
  const Number w = variable("w", 0.5), x = variable("x", 2), b = variable("b", -0.3);
  const Number y = neuron(w, x, b);
  backward(y);

  std::printf("entry  step     inputs   value  gradient\n");
  for (std::size_t n = 0; n < tape.size(); ++n) {
    const Entry& entry = tape[n];
    std::string inputs;
    if (entry.slopes[0] != 0) inputs = std::to_string(entry.inputs[0]);
    if (entry.slopes[1] != 0) inputs += ", " + std::to_string(entry.inputs[1]);
    std::printf("%5zu  %-8s %-6s %7.4f %9.4f\n", n, entry.text.c_str(), inputs.c_str(), entry.value, entry.gradient);
  }

  // The same derivatives from two values of the function, a small step apart.
  const double step = 1e-6;
  const auto value = [](double w_value, double x_value, double b_value) {
    return std::tanh(w_value * x_value + b_value);
  };
  std::printf("\nby w: tape %.6f, difference %.6f\n", w.gradient(),
              (value(0.5 + step, 2, -0.3) - value(0.5 - step, 2, -0.3)) / (2 * step));
  std::printf("by x: tape %.6f, difference %.6f\n", x.gradient(),
              (value(0.5, 2 + step, -0.3) - value(0.5, 2 - step, -0.3)) / (2 * step));

  // A number that is used twice gets the sum of both contributions: d(x * x) = 2 x dx.
  const Number square = x * x;
  backward(square);
  std::printf("d(x * x)/dx at x = 2: %g\n", x.gradient());
  return 0;
}
