#include "autograd/ops.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

using Kind = Operand::Kind;

// y[index] = x[from(index)].
std::function<Array(const std::vector<Array>&)> moved(std::function<Shape(const Shape&)> shape_of,
                                                      std::function<Index(const Index&)> from) {
  return [=](const std::vector<Array>& x) {
    Array y(shape_of(x[0].shape));
    for_each_index(y.shape, [&](const Index& index) { y[index] = x[0][from(index)]; });
    return y;
  };
}

OpCase shape_case(const std::string& name, std::vector<Shapes> shapes, Shapes large,
                  std::function<Tensor(const std::vector<Tensor>&)> run,
                  std::function<Array(const std::vector<Array>&)> reference, std::vector<std::string> kernels = {}) {
  const std::size_t operands = shapes[0].size();
  return {.name = name,
          .kernels = std::move(kernels),
          .operands = std::vector<Operand>(operands),
          .shapes = std::move(shapes),
          .large = std::move(large),
          .run = std::move(run),
          .reference = std::move(reference)};
}

}  // namespace

std::vector<OpCase> shape_cases() {
  const auto same = [](const Shape& shape) { return shape; };
  const auto swapped = [](Shape shape) {
    std::swap(shape[0], shape[2]);
    return shape;
  };
  return {
      shape_case(
          "reshape", {{{2, 6}}, {{1, 4}}, {{0, 4}}}, {{200, 400}},
          [](const auto& x) { return reshape(x[0], shape(2, x[0].numel() / 2)); },
          [](const auto& x) {
            Array y = x[0];
            y.shape = {2, x[0].shape.numel() / 2};
            return y;
          }),
      shape_case(
          "transpose", {{{2, 3, 4}}, {{1, 1, 1}}, {{0, 2, 3}}}, {{40, 50, 30}},
          [](const auto& x) { return transpose(x[0], 0, -1); }, moved(swapped, swapped)),
      shape_case("slice", {{{2, 5, 2}}, {{1, 3, 1}}, {{0, 4, 2}}}, {{40, 50, 30}},
                 [](const auto& x) { return slice(x[0], 1, 1, 3); },
                 moved([](const Shape& s) { return shape(s[0], 2, s[2]); },
                       [](const Index& n) { return shape(n[0], n[1] + 1, n[2]); }),
                 {"fill", "copy"}),
      shape_case(
          "slice_empty", {{{2, 5, 2}}}, {{40, 50, 30}}, [](const auto& x) { return slice(x[0], -2, 3, 3); },
          moved([](const Shape& s) { return shape(s[0], 0, s[2]); }, same)),
      shape_case(
          "select", {{{2, 5, 2}}, {{1, 3, 1}}, {{0, 4, 2}}}, {{40, 50, 30}},
          [](const auto& x) { return select(x[0], 1, 2); },
          moved([](const Shape& s) { return shape(s[0], s[2]); }, [](const Index& n) { return shape(n[0], 2, n[1]); }),
          {"fill", "copy"}),
      shape_case("broadcast_to", {{{2, 1}}, {{}}, {{3}}, {{1, 1}}}, {{2, 1}},
                 [](const auto& x) { return broadcast_to(x[0], shape(4, 2, 3)); },
                 moved([](const Shape&) { return shape(4, 2, 3); }, same), {"reduce"}),
      shape_case(
          "unsqueeze", {{{2, 3}}, {{1, 1}}, {{0, 3}}}, {{200, 300}}, [](const auto& x) { return unsqueeze(x[0], 1); },
          moved([](const Shape& s) { return shape(s[0], 1, s[1]); }, [](const Index& n) { return shape(n[0], n[2]); })),
      shape_case(
          "unsqueeze_last", {{{2, 3}}}, {{200, 300}}, [](const auto& x) { return unsqueeze(x[0], -1); },
          moved([](const Shape& s) { return shape(s[0], s[1], 1); }, [](const Index& n) { return shape(n[0], n[1]); })),
      shape_case(
          "concat", {{{2, 3, 2}, {2, 1, 2}}, {{1, 1, 1}, {1, 1, 1}}, {{2, 0, 2}, {2, 2, 2}}, {{0, 1, 2}, {0, 2, 2}}},
          {{40, 50, 30}, {40, 20, 30}},
          [](const auto& x) {
            return concat({x[0], x[1]}, -2);
          },
          [](const auto& x) {
            Shape shape = x[0].shape;
            const std::int64_t first = shape[1];
            shape[1] += x[1].shape[1];
            Array y(shape);
            for_each_index(shape, [&](const Index& n) {
              y[n] = n[1] < first ? x[0][n] : x[1][{n[0], n[1] - first, n[2]}];
            });
            return y;
          },
          {"copy"}),
      shape_case("contiguous", {{{2, 3, 4}}, {{1, 1, 1}}, {{0, 2, 3}}}, {{40, 50, 30}},
                 [](const auto& x) { return contiguous(transpose(x[0], 0, 2)); }, moved(swapped, swapped), {"copy"}),
      shape_case(
          "cast", {{{2, 3}}, {{}}, {{0, 3}}}, {{200, 300}}, [](const auto& x) { return cast(x[0], DType::f64); },
          [](const auto& x) { return x[0]; }),
  };
}

}  // namespace tally::testing
