#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

using Kind = Operand::Kind;
using Reference = std::function<Array(const std::vector<Array>&)>;

// Sums x into a shape that has size 1 on the reduced axes; then gives it `shape`. In long double: the sum of many
// numbers must be closer to the truth than the kernel's.
Array sum_into(const Array& x, const Shape& kept, const Shape& shape) {
  std::vector<long double> totals(static_cast<std::size_t>(kept.numel()), 0.0L);
  Array slots(kept);  // the index in totals of each element
  for (std::size_t n = 0; n < totals.size(); ++n) slots.values[n] = static_cast<double>(n);
  const Array& slot = slots;
  for_each_index(x.shape, [&](const Index& index) { totals[static_cast<std::size_t>(slot[index])] += x[index]; });
  Array y(shape);
  for (std::size_t n = 0; n < totals.size(); ++n) y.values[n] = static_cast<double>(totals[n]);
  return y;
}

OpCase reduce_case(const std::string& name, std::vector<Shapes> shapes, const Shape& large,
                   std::function<Tensor(const std::vector<Tensor>&)> run, Reference reference) {
  return {.name = name,
          .kernels = {"reduce"},
          .operands = {{Kind::real, -1, 2}},
          .shapes = std::move(shapes),
          .large = {large},
          .run = std::move(run),
          .reference = std::move(reference)};
}

Reference divided_by_count(Reference sum_reference) {
  return [=](const std::vector<Array>& x) {
    Array y = sum_reference(x);
    for (double& value : y.values)
      value *= static_cast<double>(y.values.size()) / static_cast<double>(x[0].values.size());
    return y;
  };
}

// The columns of a row that take part: all, or those up to the diagonal.
std::int64_t row_end(const Index& index, std::int64_t width, bool causal) { return causal ? index.back(1) + 1 : width; }

Reference softmax_reference(bool causal) {
  return [causal](const std::vector<Array>& x) {
    Array y(x[0].shape);
    for_each_index(y.shape, [&](const Index& index) {
      const std::int64_t end = row_end(index, y.shape.back(), causal);
      if (index.back() >= end) return;
      double total = 0;
      for (std::int64_t k = 0; k < end; ++k) total += std::exp(x[0][with_last(index, k)] - x[0][index]);
      y[index] = 1 / total;
    });
    return y;
  };
}

Reference cumsum_reference(bool reverse, bool causal) {
  return [=](const std::vector<Array>& x) {
    Array y(x[0].shape);
    for_each_index(y.shape, [&](const Index& index) {
      const std::int64_t end = row_end(index, y.shape.back(), causal);
      if (index.back() >= end) return;
      const std::int64_t from = reverse ? index.back() : 0, to = reverse ? end : index.back() + 1;
      for (std::int64_t k = from; k < to; ++k) y[index] += x[0][with_last(index, k)];
    });
    return y;
  };
}

Array norm_reference(const std::vector<Array>& x, bool centred, double eps) {
  Array y(x[0].shape);
  const std::int64_t width = y.shape.back();
  for_each_index(y.shape, [&](const Index& index) {
    double mean = 0, variance = 0;
    for (std::int64_t n = 0; centred && n < width; ++n) {
      mean += x[0][with_last(index, n)] / static_cast<double>(width);
    }
    for (std::int64_t n = 0; n < width; ++n) {
      variance += std::pow(x[0][with_last(index, n)] - mean, 2) / static_cast<double>(width);
    }
    y[index] = (x[0][index] - mean) / std::sqrt(variance + eps) * x[1][index] + (centred ? x[2][index] : 0);
  });
  return y;
}

Array largest_along(const Array& x, int axis) {
  Shape kept = x.shape;
  kept[axis] = 1;
  Array y(kept);
  std::fill(y.values.begin(), y.values.end(), -std::numeric_limits<double>::infinity());
  for_each_index(x.shape, [&](Index index) {
    const double value = x[index];
    index[axis] = 0;
    y[index] = std::max(y[index], value);
  });
  return y;
}

OpCase scan_case(const std::string& name, bool causal, std::function<Tensor(const Tensor&)> run, Reference reference) {
  return {.name = name,
          .kernels = {"cumsum"},
          .operands = {{Kind::real, -1, 2}},
          .shapes = causal ? std::vector<Shapes>{{{2, 3, 3}}, {{1, 1}}, {{2, 0, 0}}, {{0, 2, 2}}}
                           : std::vector<Shapes>{{{2, 5}}, {{4}}, {{3, 1}}, {{2, 0}}, {{0, 2}}},
          .large = {causal ? Shape{3, 170, 170} : Shape{40, 1100}},
          .run = [run](const auto& x) { return run(x[0]); },
          .reference = std::move(reference)};
}

const std::vector<Shapes> square_shapes = {{{3, 3}}, {{2, 2, 4, 4}}, {{1, 1}}, {{2, 0, 0}}, {{0, 2, 2}}};

}  // namespace

std::vector<OpCase> row_cases() {
  const Reference sum_all = [](const auto& x) {
    Shape ones = x[0].shape;
    for (int axis = 0; axis < ones.rank; ++axis) ones[axis] = 1;
    return sum_into(x[0], ones, {});
  };
  const Reference sum_middle = [](const auto& x) {
    const Shape& s = x[0].shape;
    return sum_into(x[0], shape(s[0], 1, s[2]), shape(s[0], s[2]));
  };
  const std::vector<int> ends{-1, 0};
  const Reference sum_ends_kept = [](const auto& x) {
    const Shape& s = x[0].shape;
    return sum_into(x[0], shape(1, s[1], 1), shape(1, s[1], 1));
  };
  std::vector<OpCase> cases = {
      reduce_case(
          "sum_all", {{{2, 3}}, {{}}, {{1, 1}}, {{0, 3}}}, {30, 90, 50}, [](const auto& x) { return sum(x[0]); },
          sum_all),
      reduce_case(
          "sum_middle", {{{2, 3, 4}}, {{1, 1, 1}}, {{2, 0, 3}}, {{0, 2, 3}}}, {20, 90, 50},
          [](const auto& x) { return sum(x[0], {1}); }, sum_middle),
      reduce_case(
          "sum_first_last", {{{2, 3, 4}}, {{1, 2, 1}}, {{2, 0, 3}}}, {60, 40, 50},
          [=](const auto& x) { return sum(x[0], ends, true); }, sum_ends_kept),
      reduce_case(
          "mean", {{{2, 3}}, {{}}, {{1, 1}}}, {30, 90, 50}, [](const auto& x) { return mean(x[0]); },
          divided_by_count(sum_all)),
      reduce_case(
          "sum_to", {{{2, 3, 4}}, {{1, 3, 1}}, {{0, 3, 2}}}, {40, 3, 700},
          [](const auto& x) { return sum_to(x[0], shape(3, 1)); },
          [](const auto& x) { return sum_into(x[0], shape(1, 3, 1), shape(3, 1)); }),
      reduce_case(
          "max_last", {{{2, 3, 4}}, {{5}}, {{1, 1}}, {{0, 3}}}, {300, 170}, [](const auto& x) { return max(x[0], -1); },
          [](const auto& x) {
            Array y = largest_along(x[0], x[0].shape.rank - 1);
            --y.shape.rank;
            return y;
          }),
      reduce_case(
          "max_first_kept", {{{3, 2, 4}}, {{1, 1}}, {{2, 0}}}, {170, 300},
          [](const auto& x) { return max(x[0], 0, true); }, [](const auto& x) { return largest_along(x[0], 0); }),
      {.name = "argmax",
       .kernels = {"argmax"},
       .operands = {{Kind::whole, 0, 4}},
       .shapes = {{{2, 3, 5}}, {{4}}, {{1, 1}}, {{0, 3}}},
       .large = {{30, 1700}},
       .run = [](const auto& x) { return argmax(x[0]); },
       .reference =
           [](const auto& x) {
             Shape shape = x[0].shape;
             const std::int64_t width = shape.back();
             shape.rank -= 1;
             Array y(shape);
             for_each_index(shape, [&](const Index& index) {
               Index at = index;
               at.append(0);
               std::int64_t best = 0;
               for (std::int64_t n = 1; n < width; ++n) {
                 if (x[0][with_last(at, n)] > x[0][with_last(at, best)]) best = n;
               }
               y[index] = static_cast<double>(best);
             });
             return y;
           },
       .differentiable = false},
      {.name = "softmax",
       .kernels = {"softmax", "softmax_backward"},
       .operands = {{Kind::real, -4, 4}},
       .shapes = {{{2, 3, 4}}, {{5}}, {{2, 1}}, {{0, 3}}, {{3, 0}}},
       .large = {{300, 170}},
       .run = [](const auto& x) { return softmax(x[0]); },
       .reference = softmax_reference(false)},
      {.name = "causal_softmax",
       .kernels = {"softmax", "softmax_backward"},
       .operands = {{Kind::real, -4, 4}},
       .shapes = square_shapes,
       .large = {{2, 3, 130, 130}},
       .run = [](const auto& x) { return causal_softmax(x[0]); },
       .reference = softmax_reference(true)},
      {.name = "layer_norm",
       .kernels = {"norm", "norm_backward"},
       .operands = {{Kind::real, -2, 3}, {Kind::real, 0.5, 1.5}, {Kind::real, -1, 1}},
       .shapes = {{{2, 3, 5}, {5}, {5}}, {{4}, {4}, {4}}, {{2, 2}, {2}, {2}}, {{0, 3}, {3}, {3}}, {{70, 2}, {2}, {2}}},
       .large = {{7, 150, 70}, {70}, {70}},
       .run = [](const auto& x) { return layer_norm(x[0], x[1], x[2], 1e-3); },
       .reference = [](const auto& x) { return norm_reference(x, true, 1e-3); },
       .tolerance = 16},
      {.name = "rms_norm",
       .kernels = {"norm", "norm_backward"},
       .operands = {{Kind::real, -2, 3}, {Kind::real, 0.5, 1.5}},
       .shapes = {{{2, 3, 5}, {5}}, {{4}, {4}}, {{2, 1}, {1}}, {{0, 3}, {3}}, {{70, 2}, {2}}},
       .large = {{7, 150, 70}, {70}},
       .run = [](const auto& x) { return rms_norm(x[0], x[1], 1e-3); },
       .reference = [](const auto& x) { return norm_reference(x, false, 1e-3); },
       .tolerance = 16},
      {.name = "rms_norm_without_weight",
       .kernels = {"norm", "norm_backward"},
       .operands = {{Kind::real, -2, 3}},
       .shapes = {{{2, 3, 5}}, {{2, 3, 2, 4}}, {{4}}, {{2, 1}}, {{0, 3}}},
       .large = {{7, 5, 30, 70}},
       .run = [](const auto& x) { return rms_norm(x[0], 1e-3); },
       .reference =
           [](const auto& x) {
             Array one({x[0].shape.back()});
             std::fill(one.values.begin(), one.values.end(), 1.0);
             return norm_reference({x[0], one}, false, 1e-3);
           },
       .tolerance = 16},
      scan_case(
          "cumsum", false, [](const Tensor& x) { return cumsum(x); }, cumsum_reference(false, false)),
      scan_case(
          "cumsum_reverse", false, [](const Tensor& x) { return cumsum(x, true); }, cumsum_reference(true, false)),
      scan_case("causal_suffix_sum", true, causal_suffix_sum, cumsum_reference(true, true)),
  };
  for (OpCase& op : cases) {
    if (op.name == "max_last" || op.name == "max_first_kept") op.kernels = {"reduce", "argmax", "compare", "where"};
  }
  return cases;
}

}  // namespace tally::testing
