#include <cmath>

#include "autograd/ops.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

double squash(double a) { return 1 / (1 + std::exp(-a)); }

// h of every step (or c), one number at a time.
Array run_steps(const std::vector<Array>& in, bool cells) {
  const Array &x = in[0], &weight = in[1];
  const std::int64_t batch = x.shape[0], length = x.shape[1], width = x.shape[2] / 4;
  Array y({batch, length, width});
  for (std::int64_t b = 0; b < batch; ++b) {
    Array hidden({width}), cell({width});
    for (std::int64_t j = 0; j < width; ++j) hidden[{j}] = in[2][{b, j}], cell[{j}] = in[3][{b, j}];
    for (std::int64_t t = 0; t < length; ++t) {
      const Array earlier = hidden;
      for (std::int64_t j = 0; j < width; ++j) {
        double sum[4];
        for (std::int64_t gate = 0; gate < 4; ++gate) {
          sum[gate] = x[{b, t, gate * width + j}];
          for (std::int64_t k = 0; k < width; ++k) sum[gate] += weight[{gate * width + j, k}] * earlier[{k}];
        }
        cell[{j}] = squash(sum[1]) * cell[{j}] + squash(sum[0]) * std::tanh(sum[2]);
        hidden[{j}] = squash(sum[3]) * std::tanh(cell[{j}]);
        y[{b, t, j}] = cells ? cell[{j}] : hidden[{j}];
      }
    }
  }
  return y;
}

// Sequences, steps, width.
Shapes shapes_of(std::int64_t batch, std::int64_t length, std::int64_t width) {
  return {{batch, length, 4 * width}, {4 * width, width}, {batch, width}, {batch, width}};
}

OpCase lstm_case(const std::string& name, std::vector<std::string> kernels, bool cells) {
  return {.name = name,
          .kernels = std::move(kernels),
          .operands = {{}, {Operand::Kind::real, -1, 1}, {Operand::Kind::real, -1, 1}, {}},
          .shapes = {shapes_of(2, 3, 2), shapes_of(5, 2, 3), shapes_of(1, 1, 1), shapes_of(2, 0, 2), shapes_of(0, 2, 2),
                     shapes_of(2, 2, 0)},
          .large = shapes_of(9, 6, 40),
          .run =
              [cells](const auto& x) {
                const LstmSteps steps = lstm(x[0], x[1], x[2], x[3]);
                return cells ? steps.cells : steps.hidden;
              },
          .reference = [cells](const auto& x) { return run_steps(x, cells); },
          .differentiable = !cells,
          .tolerance = 32};
}

}  // namespace

std::vector<OpCase> recurrent_cases() {
  return {lstm_case("lstm", {"lstm", "lstm_backward"}, false), lstm_case("lstm_cells", {"lstm"}, true)};
}

}  // namespace tally::testing
