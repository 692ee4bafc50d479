// Chapter 1: a tensor is memory with a shape. Views of one block of memory, and their strides.
#include <cstdint>
#include <cstdio>
#include <tally/tally.hpp>
#include <vector>

using tally::Tensor;

// Prints the shape, the strides and the offset of x, then its elements in rows.
void show(const char* name, const Tensor& x) {
  std::printf("%s: shape %s, strides [", name, tally::to_text(x.shape()).c_str());
  for (int axis = 0; axis < x.rank(); ++axis)
    std::printf(axis == 0 ? "%d" : ", %d", static_cast<int>(x.strides()[axis]));
  std::printf("], offset %d\n", static_cast<int>(x.offset()));
  const std::vector<float> elements = x.to_vector<float>();
  const auto columns = static_cast<std::size_t>(x.size(-1));
  for (std::size_t n = 0; n < elements.size(); ++n)
    std::printf("%s%3g%s", n % columns == 0 ? "   " : "", elements[n], n % columns == columns - 1 ? "\n" : "");
}

int main() {
  // Twelve numbers, one after the other in memory, read as three rows of four.
  const Tensor x = Tensor::from<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4});
  show("x", x);

  // The address of an element: strides give the step along each axis.
  const float* memory = x.span<float>().data();
  const std::int64_t row = 2, column = 1;
  const std::int64_t place = x.offset() + row * x.strides()[0] + column * x.strides()[1];
  std::printf("x[2, 1] is at place %d: %g\n\n", static_cast<int>(place), memory[place]);

  // Views: the same memory, other shapes and strides. Nothing is copied.
  const Tensor second_row = select(x, 0, 1);
  const Tensor third_column = select(x, 1, 2);
  const Tensor middle = slice(x, 1, 1, 3);
  const Tensor transposed = transpose(x, 0, 1);
  show("second row", second_row);
  show("third column", third_column);
  show("middle", middle);
  show("transposed", transposed);

  // Broadcasting: a stride of 0 reads the same element again.
  const Tensor bias = Tensor::from<float>({10, 20, 30, 40}, {4});
  show("bias as rows", broadcast_to(bias, {3, 4}));

  // They all see a change of the one memory.
  Tensor changed = middle;
  changed.fill(-1);
  show("x after filling its middle", x);

  // Kernels want dense rows: a transposed view is copied first.
  std::printf("dense: x %s, transposed %s\n", x.dense() ? "yes" : "no", transposed.dense() ? "yes" : "no");
  show("a dense copy", reshape(transposed, {2, 6}));
  return 0;
}
