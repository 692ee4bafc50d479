#include "autograd/ops.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

using Kind = Operand::Kind;

constexpr double alpha = 0.75;

// alpha a b, leading axes broadcast.
Array matmul_reference(const std::vector<Array>& x) {
  const Shape& a = x[0].shape;
  const Shape& b = x[1].shape;
  Shape lead_a = a, lead_b = b;
  lead_a.rank -= 2;
  lead_b.rank -= 2;
  Shape shape = broadcast_shapes("reference", lead_a, lead_b);
  shape.append(a.back(1));
  shape.append(b.back());
  Array c(shape);
  for_each_index(shape, [&](const Index& index) {
    for (std::int64_t k = 0; k < a.back(); ++k) {
      c[index] += alpha * x[0][with_last(index, k)] * x[1][with_last_two(index, k, index.back())];
    }
  });
  return c;
}

// x w^T + bias.
Array linear_reference(const std::vector<Array>& x) {
  Shape shape = x[0].shape;
  shape[shape.rank - 1] = x[1].shape[0];
  Array y(shape);
  for_each_index(shape, [&](const Index& index) {
    const std::int64_t out = index.back();
    if (x.size() > 2) y[index] = x[2][{out}];
    for (std::int64_t in = 0; in < x[1].shape[1]; ++in) y[index] += x[0][with_last(index, in)] * x[1][{out, in}];
  });
  return y;
}

// Row after row, in the order of the definition.
Array solve_reference(const std::vector<Array>& x) {
  Array y = x[1];
  for_each_index(y.shape, [&](const Index& index) {
    const std::int64_t row = index.back(1);
    for (std::int64_t j = 0; j < row; ++j) {
      y[index] -= x[0][with_last(index, j)] * y[with_last_two(index, j, index.back())];
    }
  });
  return y;
}

OpCase product_case(const std::string& name, std::vector<Shapes> shapes, Shapes large,
                    std::function<Tensor(const std::vector<Tensor>&)> run,
                    std::function<Array(const std::vector<Array>&)> reference,
                    std::vector<std::string> kernels = {"matmul"}) {
  return {.name = name,
          .kernels = std::move(kernels),
          .operands = std::vector<Operand>(shapes[0].size(), Operand{Kind::real, -1, 1}),
          .shapes = std::move(shapes),
          .large = std::move(large),
          .run = std::move(run),
          .reference = std::move(reference),
          .tolerance = 16};
}

}  // namespace

std::vector<OpCase> product_cases() {
  const auto product = [](const auto& x) { return matmul(x[0], x[1], alpha); };
  return {
      product_case(
          "matmul",
          {{{2, 3}, {3, 4}}, {{1, 1}, {1, 1}}, {{1, 3}, {3, 1}}, {{0, 3}, {3, 2}}, {{2, 0}, {0, 3}}, {{2, 3}, {3, 0}}},
          {{521, 67}, {67, 130}}, product, matmul_reference),
      product_case("matmul_batched",
                   {{{2, 2, 3}, {2, 3, 2}}, {{1, 2, 2, 3}, {2, 1, 3, 2}}, {{2, 1, 2}, {2, 1}}, {{0, 2, 3}, {0, 3, 2}}},
                   {{3, 2, 65, 33}, {3, 2, 33, 70}}, product, matmul_reference),
      product_case("matmul_shared_right", {{{2, 2, 2, 3}, {3, 2}}, {{2, 0, 3}, {3, 2}}, {{0, 2, 3}, {3, 2}}},
                   {{3, 2, 90, 33}, {33, 70}}, product, matmul_reference),
      product_case("matmul_shared_left", {{{2, 3}, {2, 3, 2}}, {{2, 3}, {0, 3, 2}}}, {{90, 33}, {4, 33, 70}}, product,
                   matmul_reference),
      product_case("linear",
                   {{{2, 3, 4}, {2, 4}, {2}}, {{4}, {3, 4}, {3}}, {{1, 1}, {1, 1}, {1}}, {{0, 3}, {2, 3}, {2}}},
                   {{5, 111, 67}, {130, 67}, {130}}, [](const auto& x) { return linear(x[0], x[1], x[2]); },
                   linear_reference, {"matmul", "matmul_sums_rows"}),
      product_case(
          "linear_without_bias", {{{2, 3, 4}, {2, 4}}, {{2, 0}, {3, 0}}, {{2, 3}, {0, 3}}}, {{5, 111, 67}, {130, 67}},
          [](const auto& x) { return linear(x[0], x[1]); }, linear_reference),
      // Small below the diagonal, so that the results of 70 rows stay bounded.
      {.name = "solve_unit_lower",
       .kernels = {"solve_unit_lower", "solve_unit_lower_backward"},
       .operands = {{Kind::real, -0.2, 0.2}, {}},
       .shapes = {{{2, 3, 6, 6}, {2, 3, 6, 5}},
                  {{1, 1}, {1, 3}},
                  {{9, 9}, {9, 1}},
                  {{2, 4, 4}, {2, 4, 0}},
                  {{2, 0, 0}, {2, 0, 3}},
                  {{0, 3, 3}, {0, 3, 2}}},
       .large = {{3, 70, 70}, {3, 70, 37}},
       .run = [](const auto& x) { return solve_unit_lower(x[0], x[1]); },
       .reference = solve_reference,
       .tolerance = 32},
  };
}

}  // namespace tally::testing
