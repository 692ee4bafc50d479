// Uses tally as an installed package.
#include <iostream>

#include "core/tensor.hpp"

int main() {
  const tally::Tensor x = tally::Tensor::full({2, 3}, 1.5);
  std::cout << "elements: " << x.numel() << '\n';
  return x.to_vector<float>().at(5) == 1.5F ? 0 : 1;
}
