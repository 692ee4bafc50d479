#include <cmath>
#include <numbers>

#include "autograd/ops.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

using Kind = Operand::Kind;

const Shapes large_vector{{3, 20011}};

OpCase unary_case(const std::string& name, UnaryOp op, double parameter, Operand operand, double (*reference)(double)) {
  return {.name = name,
          .kernels = {"unary", "unary_backward"},
          .operands = {operand},
          .shapes = {{{2, 3}}, {{}}, {{1}}, {{0, 3}}},
          .large = large_vector,
          .run = [op, parameter](const auto& x) { return unary(op, x[0], parameter); },
          .reference =
              [reference](const auto& x) {
                Array y(x[0].shape);
                for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = reference(x[0].values[i]);
                return y;
              }};
}

// a and b, broadcast in several ways.
const std::vector<Shapes> pairs_of_shapes = {{{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 1, 2}, {3, 1}}, {{}, {2}},
                                             {{2, 2}, {}},     {{1}, {1}},    {{0, 3}, {1, 3}},    {{2, 1}, {1, 0}}};

std::function<Array(const std::vector<Array>&)> broadcast(double (*reference)(double, double)) {
  return [reference](const std::vector<Array>& x) {
    Array y(broadcast_shapes("reference", x[0].shape, x[1].shape));
    for_each_index(y.shape, [&](const Index& index) { y[index] = reference(x[0][index], x[1][index]); });
    return y;
  };
}

OpCase binary_case(const std::string& name, Operand a, Operand b, Tensor (*run)(const Tensor&, const Tensor&),
                   double (*reference)(double, double)) {
  return {.name = name,
          .kernels = {"binary"},
          .operands = {a, b},
          .shapes = pairs_of_shapes,
          .large = {{3, 1, 20011}, {2, 1}},
          .run = [run](const auto& x) { return run(x[0], x[1]); },
          .reference = broadcast(reference)};
}

OpCase compare_case(const std::string& name, Kind kind, Tensor (*run)(const Tensor&, const Tensor&),
                    double (*reference)(double, double)) {
  OpCase op = binary_case(name, {kind, 0, 3}, {kind, 0, 3}, run, reference);
  op.kernels = {"compare"};
  op.differentiable = false;
  return op;
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

std::vector<OpCase> elementwise_cases() {
  const Operand any{Kind::real, -3, 3};
  const Operand positive{Kind::real, 0.3, 3};
  const Operand off_zero{Kind::off_integers, -3, 3};
  std::vector<OpCase> cases = {
      unary_case("negate", UnaryOp::negate, 0, any, [](double x) { return -x; }),
      unary_case("abs", UnaryOp::absolute, 0, off_zero, [](double x) { return std::abs(x); }),
      unary_case("square", UnaryOp::square, 0, any, [](double x) { return x * x; }),
      unary_case("sqrt", UnaryOp::sqrt, 0, positive, [](double x) { return std::sqrt(x); }),
      unary_case("reciprocal", UnaryOp::reciprocal, 0, off_zero, [](double x) { return 1 / x; }),
      unary_case("exp", UnaryOp::exp, 0, any, [](double x) { return std::exp(x); }),
      unary_case("log", UnaryOp::log, 0, positive, [](double x) { return std::log(x); }),
      unary_case("sin", UnaryOp::sin, 0, any, [](double x) { return std::sin(x); }),
      unary_case("cos", UnaryOp::cos, 0, any, [](double x) { return std::cos(x); }),
      unary_case("sigmoid", UnaryOp::sigmoid, 0, any, sigmoid_of),
      unary_case("tanh", UnaryOp::tanh, 0, any, [](double x) { return std::tanh(x); }),
      unary_case("relu", UnaryOp::relu, 0, off_zero, [](double x) { return x > 0 ? x : 0; }),
      unary_case("leaky_relu", UnaryOp::leaky_relu, 0.25, off_zero, [](double x) { return x > 0 ? x : 0.25 * x; }),
      unary_case("leaky_relu_flat", UnaryOp::leaky_relu, 0, off_zero, [](double x) { return x > 0 ? x : 0; }),
      unary_case("gelu", UnaryOp::gelu, 0, any, [](double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }),
      unary_case("gelu_tanh", UnaryOp::gelu_tanh, 0, any,
                 [](double x) {
                   return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
                 }),
      unary_case("silu", UnaryOp::silu, 0, any, [](double x) { return x * sigmoid_of(x); }),
      unary_case("softplus", UnaryOp::softplus, 0, any,
                 [](double x) { return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : 0); }),
      unary_case("add_scalar", UnaryOp::add_scalar, 1.25, any, [](double x) { return x + 1.25; }),
      unary_case("multiply_scalar", UnaryOp::multiply_scalar, -1.5, any, [](double x) { return -1.5 * x; }),
      unary_case("power", UnaryOp::power, 2.5, positive, [](double x) { return std::pow(x, 2.5); }),
      unary_case("power_negative", UnaryOp::power, -2, off_zero, [](double x) { return 1 / (x * x); }),

      binary_case("add", any, any, add, [](double a, double b) { return a + b; }),
      binary_case("subtract", any, any, subtract, [](double a, double b) { return a - b; }),
      binary_case("multiply", any, any, multiply, [](double a, double b) { return a * b; }),
      binary_case("divide", any, off_zero, divide, [](double a, double b) { return a / b; }),
      binary_case("maximum", any, any, maximum, [](double a, double b) { return a > b ? a : b; }),
      binary_case("minimum", any, any, minimum, [](double a, double b) { return a < b ? a : b; }),

      compare_case("less", Kind::whole, less, [](double a, double b) { return a < b ? 1.0 : 0.0; }),
      compare_case("less_equal", Kind::whole, less_equal, [](double a, double b) { return a <= b ? 1.0 : 0.0; }),
      compare_case("equal", Kind::whole, equal, [](double a, double b) { return a == b ? 1.0 : 0.0; }),
      compare_case("equal_i32", Kind::id, equal, [](double a, double b) { return a == b ? 1.0 : 0.0; }),
      {.name = "where",
       .kernels = {"where"},
       .operands = {{Kind::flag}, any, any},
       .shapes = {{{2, 3}, {2, 3}, {2, 3}}, {{3}, {2, 1}, {2, 3}}, {{2, 3}, {}, {3}}, {{1}, {1}, {1}}, {{0}, {1}, {0}}},
       .large = {{2, 20011}, {20011}, {2, 1}},
       .run = [](const auto& x) { return where(x[0], x[1], x[2]); },
       .reference =
           [](const auto& x) {
             Array y(broadcast_shapes("", x[0].shape, broadcast_shapes("", x[1].shape, x[2].shape)));
             for_each_index(y.shape, [&](const Index& n) { y[n] = x[0][n] != 0 ? x[1][n] : x[2][n]; });
             return y;
           }},
  };
  for (OpCase& op : cases) {
    if (op.name == "maximum" || op.name == "minimum") op.kernels = {"binary", "compare", "where"};
  }

  OpCase integers = binary_case("multiply_i32", {Kind::id, -9, 9}, {Kind::id, -9, 9}, multiply,
                                [](double a, double b) { return a * b; });
  integers.differentiable = false;
  cases.push_back(integers);
  return cases;
}

}  // namespace tally::testing
