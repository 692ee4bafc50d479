// Chapter 9: CoPE. Gates, running sums and interpolation on a triangle of 6 x 6, and the derivative at an integer.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/tensor.hpp"

using tally::Tensor;

// Rows are queries, columns are keys. Keys above the diagonal are masked.
void print_triangle(const char* name, const std::string& tokens, const Tensor& x) {
  const std::vector<double> elements = x.to_vector<double>();
  const std::size_t length = tokens.size();
  std::printf("\n%-10s", name);
  for (const char token : tokens) std::printf("   %c  ", token);
  for (std::size_t i = 0; i < length; ++i) {
    std::printf("\n  query %c ", tokens[i]);
    for (std::size_t j = 0; j <= i; ++j) std::printf("%6.2f", elements[i * length + j]);
  }
  std::printf("\n");
}

// The entry of a table at a position that need not be a whole number. P is the last index of the table.
double interpolated(const std::vector<double>& table, double position) {
  const double P = static_cast<double>(table.size() - 1);
  const double c = std::min(position, P), f = std::floor(c), w = c - f;
  const double next = std::min(f + 1, P);
  return (1 - w) * table[static_cast<std::size_t>(f)] + w * table[static_cast<std::size_t>(next)];
}

// The same with the two weights exchanged, a mistake that has been printed.
double exchanged(const std::vector<double>& table, double position) {
  const double P = static_cast<double>(table.size() - 1);
  const double c = std::min(position, P), f = std::floor(c), w = c - f;
  const double next = std::min(f + 1, P);
  return w * table[static_cast<std::size_t>(f)] + (1 - w) * table[static_cast<std::size_t>(next)];
}

// d/dp of the operation at one position.
double derivative(const Tensor& table, double position) {
  Tensor p = Tensor::from<double>({position}, {1});
  tally::set_requires_grad(p);
  tally::backward(tally::sum(tally::interpolate(table, p)));
  return tally::gradient(p).item();
}

int main() {
  const std::string tokens = "ab.cd.";
  const auto length = static_cast<std::int64_t>(tokens.size());

  // Scores of all queries with all keys. A full stop has a score of 2 with every query, a letter has -2.
  std::vector<double> scores;
  for (std::int64_t i = 0; i < length; ++i)
    for (const char key : tokens) scores.push_back(key == '.' ? 2 : -2);
  const Tensor s = Tensor::from(scores, {length, length});

  const Tensor gates = tally::sigmoid(s);
  const Tensor positions = tally::causal_suffix_sum(gates);
  print_triangle("gates", tokens, gates);
  print_triangle("positions", tokens, positions);

  // One table for all queries, P = 2.
  const std::vector<double> entries{0, 1, 4};
  const Tensor table = tally::contiguous(tally::broadcast_to(Tensor::from(entries, {3}), {length, 3}));
  print_triangle("terms", tokens, tally::interpolate_causal(table, positions));
  std::printf("by hand: position 1.24 reads 0.76 * 1 + 0.24 * 4 = %.2f\n\n", interpolated(entries, 1.24));

  for (const double p : {0.98, 0.99, 1.0, 1.01})
    std::printf("p = %.2f: right %.2f, exchanged %.2f\n", p, interpolated(entries, p), exchanged(entries, p));

  const Tensor row = Tensor::from(entries, {3});
  std::printf("\n");
  for (const double p : {0.5, 1.0, 1.5, 2.0, 2.5}) std::printf("p = %.1f: derivative %g\n", p, derivative(row, p));
  return 0;
}
