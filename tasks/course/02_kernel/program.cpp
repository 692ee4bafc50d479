// Chapter 2: a kernel. Softmax written as loops, the kernel of the library, and the order of additions.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/cpu/parallel.hpp"
#include "core/device/kernels.hpp"
#include "core/tensor.hpp"

using tally::Tensor;

// y_j = e^x_j / sum_k e^x_k, as in a textbook.
void textbook_softmax(std::vector<float>& y, const std::vector<float>& x) {
  float sum = 0;
  for (std::size_t j = 0; j < x.size(); ++j) sum += std::exp(x[j]);
  for (std::size_t j = 0; j < x.size(); ++j) y[j] = std::exp(x[j]) / sum;
}

// The same function: numerator and denominator are multiplied by e^-m, with the largest element m.
void stable_softmax(std::vector<float>& y, const std::vector<float>& x) {
  float m = x[0];
  for (std::size_t j = 1; j < x.size(); ++j) m = std::max(m, x[j]);
  float sum = 0;
  for (std::size_t j = 0; j < x.size(); ++j) sum += y[j] = std::exp(x[j] - m);
  for (std::size_t j = 0; j < x.size(); ++j) y[j] /= sum;
}

void print_row(const char* name, const std::vector<float>& row) {
  std::printf("%-10s", name);
  for (const float value : row)
    std::isnan(value) ? std::printf(" nan") : std::printf(" %.4f", static_cast<double>(value));
  std::printf("\n");
}

// Calls the kernel through the table of the CPU; y and x are views, without ownership.
Tensor kernel_softmax(const Tensor& x) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  tally::kernels(x.device()).softmax(y.view(), x.view(), /*causal=*/false);
  return y;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto bytes = static_cast<std::size_t>(a.numel()) * sizeof(float);
  return std::memcmp(a.view().data, b.view().data, bytes) == 0;
}

int main() {
  std::vector<float> y(4);
  for (const std::vector<float>& x : {std::vector<float>{1, 2, 3, 4}, std::vector<float>{101, 102, 103, 104}}) {
    textbook_softmax(y, x);
    print_row("textbook", y);
    stable_softmax(y, x);
    print_row("stable", y);
    print_row("kernel", kernel_softmax(Tensor::from(x, {4})).to_vector<float>());
  }

  // Additions of floats: the order decides about the last bits.
  std::vector<float> terms;
  for (int n = 1; n <= 100000; ++n) terms.push_back(1.0F / static_cast<float>(n));
  float forwards = 0, backwards = 0;
  for (std::size_t n = 0; n < terms.size(); ++n) forwards += terms[n];
  for (std::size_t n = terms.size(); n-- > 0;) backwards += terms[n];
  std::printf("\n1 + 1/2 + ... + 1/100000: forwards %.6f, backwards %.6f, exactly 12.090146\n",
              static_cast<double>(forwards), static_cast<double>(backwards));

  // The kernel gives the same bits for any number of threads.
  std::vector<float> numbers(512 * 512);
  for (std::size_t n = 0; n < numbers.size(); ++n) numbers[n] = std::sin(static_cast<float>(n));
  const Tensor x = Tensor::from(numbers, {512, 512});
  tally::set_thread_count(1);
  const Tensor by_one = kernel_softmax(x);
  tally::set_thread_count(3);
  const Tensor by_three = kernel_softmax(x);
  std::printf("one thread and three threads: %s bits\n", same_bits(by_one, by_three) ? "the same" : "other");
  return 0;
}
