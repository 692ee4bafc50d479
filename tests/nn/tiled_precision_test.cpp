// Tiled attention in single precision, away from the kinks of scores and at them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tests/nn/score_cases.hpp"
#include "tests/nn/share.hpp"

namespace tally {
namespace tiled_precision_test {

using testing::compute;
using testing::drawn;
using testing::expect_equal;
using testing::Inputs;
using testing::largest;
using testing::largest_difference;
using testing::make_inputs;
using testing::normal_tensor;
using testing::Outcome;
using testing::several_tiles;
using testing::shape_cases;
using testing::ShapeCase;
using testing::Sizes;
using testing::Values;

class TiledPrecision : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(TiledPrecision);

double distance_to_kinks(const ShapeCase& one, const Sizes& sizes, const Values& values) {
  const Inputs inputs = make_inputs(one, sizes, DType::f64, values);
  return testing::distance_to_kinks(inputs.operands, inputs.score);
}

// The factor of the rounding error of do.o on its way to a gradient. The error is the same for a whole row of dl = a
// (da - do.o). The composed form sums a da in double instead of taking do.o from the rounded output. For tables that
// keep rising the factor is a position. A score modification's numbers of rows and heads are freed of it
// (core/cpu/attention/score_mod.hpp).
double reach(const std::string& name, const Sizes& sizes) {
  const auto length = static_cast<double>(sizes.length);
  if (name == "rise" || name == "slopes" || name == "u" || name == "w") return length;
  if (name == "slope" || name == "b") return std::sqrt(length);  // the sum of all rows' roundings
  return 1;
}

// The largest logit without its factor of the row, which the factor's gradient multiplies dl with.
double largest_logit(const ShapeCase& one, const Sizes& sizes, const Values& values) {
  const NoGrad only_values;
  Inputs inputs = make_inputs(one, sizes, DType::f64, values);
  inputs.score.row_factor = {};
  const std::vector<double> logits = composed_logits(inputs.operands, inputs.score).to_vector<double>();
  double found = 0;
  for (std::size_t n = 0; n < logits.size(); ++n) {
    const auto pair = static_cast<std::int64_t>(n) % (sizes.length * sizes.length);
    if (one.mask.attends(pair / sizes.length, pair % sizes.length)) found = std::max(found, std::abs(logits[n]));
  }
  return found;
}

// As `values`, but moved by rounding's size.
Values moved(const Values& values, int run) {
  return [values, run](const std::string& name, const Shape& shape, double deviation) {
    constexpr double quarter_unit = 3e-8;
    return values(name, shape, deviation) *
           (normal_tensor(formatted("{} moved {}", name, run), shape, quarter_unit) + 1.0);
  };
}

// The composed form's errors in f32: of several runs the largest, since a single one may hit a gradient of few numbers
// by chance.
struct ComposedErrors {
  double output = 0;
  std::map<std::string, double> gradients;
};
ComposedErrors composed_errors(const ShapeCase& one, const Sizes& sizes, const Values& values, const Outcome& exact) {
  constexpr int runs = 4;
  ComposedErrors errors;
  for (int run = 0; run < runs; ++run) {
    const Outcome composed = compute(one, sizes, DType::f32, false, 0, run == 0 ? values : moved(values, run));
    errors.output = std::max(errors.output, largest_difference(composed.output, exact.output));
    for (const auto& [name, expected] : exact.gradients) {
      double& largest = errors.gradients[name];
      largest = std::max(largest, largest_difference(composed.gradients.at(name), expected));
    }
  }
  return errors;
}

// The f32 error against f64 may be twice the composed form's (gradients: three times), plus one rounding (gradients:
// two) of the largest value. Gradients may also have the rounding error of do.o times its reach. At most 1.6 times that
// was measured (the row bias in a GPU's kernels, whose gradient is 0 up to rounding), on the CPU 0.9.
enum class Compared { output, gradients, both };
void expect_as_precise(const ShapeCase& one, const Sizes& sizes, const Values& values, Compared compared) {
  constexpr double rounding = 1.2e-7, roundings = 2;  // of do.o
  const Outcome exact = compute(one, sizes, DType::f64, false, 0, values),
                tiled = compute(one, sizes, DType::f32, true, 0, values);
  const ComposedErrors composed = composed_errors(one, sizes, values, exact);
  if (compared != Compared::gradients) {
    EXPECT_LE(largest_difference(tiled.output, exact.output), 2 * composed.output + rounding * largest(exact.output));
  }
  if (compared == Compared::output) return;
  const Tensor terms = abs(exact.output * normal_tensor("d_output", exact.output.shape()));
  const double of_row = rounding * largest(sum(terms, {3}));
  for (const auto& [name, expected] : exact.gradients) {
    const double found = largest_difference(tiled.gradients.at(name), expected);
    const double of_composed = composed.gradients.at(name);
    const double reached = name == "row_factor" ? largest_logit(one, sizes, values) : reach(name, sizes);
    EXPECT_LE(found, 3 * of_composed + 2 * rounding * largest(expected) + of_row * roundings * reached) << name;
  }
}

// Wider than the part of a head that a GPU holds in shared memory at a time.
constexpr Sizes wide_heads{1, 1, 40, 150, 130};

// With this number of pairs some are next to a kink, so the next test has the gradients of shapes with kinks.
TEST_P(TiledPrecision, IsAsPreciseAsTheComposedFormInSingle) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  std::size_t turn = 0;
  for (const ShapeCase& one : shape_cases()) {
    ++turn;
    for (const Sizes& sizes :
         {Sizes{1, 2, 1, 16, 16}, Sizes{1, 2, several_tiles(), 16, 16}, Sizes{1, 2, 70, 64, 64}, wide_heads}) {
      // Executed by the CPU the kernels take their time: one in five.
      if (testing::takes_a_share() && ++turn % 5 != 0) continue;
      SCOPED_TRACE(formatted("{} T {} d {}", one.name, sizes.length, sizes.width));
      expect_as_precise(one, sizes, drawn(0), one.kinks ? Compared::output : Compared::both);
    }
  }
}

// Rounding of a position next to a kink decides between two derivatives, so these numbers keep all positions away from
// kinks. The test before has the outputs: its sample is large enough for twice the error of the composed form to mean
// something.
TEST_P(TiledPrecision, HasGradientsAsPreciseAsThoseOfTheComposedFormBetweenKinks) {
  constexpr double apart = 1e-4;
  constexpr int most_draws = 200;
  std::size_t turn = 0;
  for (const ShapeCase& one : shape_cases()) {
    if (!one.kinks) continue;
    for (const Sizes& sizes : {Sizes{1, 2, 1, 16, 16}, Sizes{1, 1, 150, 16, 16}, Sizes{1, 1, 70, 64, 64}}) {
      if (testing::takes_a_share() && ++turn % 4 != 0) continue;
      SCOPED_TRACE(formatted("{} T {} d {}", one.name, sizes.length, sizes.width));
      int draw = 0;
      while (draw < most_draws && distance_to_kinks(one, sizes, drawn(draw)) < apart) ++draw;
      ASSERT_LT(draw, most_draws) << "none of them keeps all positions away from kinks";
      expect_as_precise(one, sizes, drawn(draw), Compared::gradients);
    }
  }
}

// Half of the elements of each query are 0, and the other half of each key's. So their product has only the term of the
// first elements, `first`, but gradients reach all elements.
Values crossed(double first) {
  return [first](const std::string& name, const Shape& shape, double deviation) {
    const bool query = name == "q" || name == "gate_query", key = name == "k" || name == "gate_key";
    // Units of a network that bend at positions 2, 3, 2, 4 and 1/2.
    if (name == "w") return Tensor::from(std::vector<double>{1, -1, 0.5, 2, -2}, shape, default_device());
    if (name == "b") return Tensor::from(std::vector<double>{-2, 3, -1, -8, 1}, shape, default_device());
    const Tensor tensor = normal_tensor(name, shape, deviation);
    if (!query && !key) return tensor;
    std::vector<double> values = tensor.to_vector<double>();
    const auto width = static_cast<std::size_t>(shape.back());
    for (std::size_t n = 0; n < values.size(); ++n) {
      if (n % 2 == (query ? 0 : 1)) values[n] = 0;
      if (n % width == 0) values[n] = query ? std::abs(first) : first;
    }
    return Tensor::from(values, shape, default_device());
  };
}

// Every gate is exactly 1/2 or 1: every second position, or every one, is an integer, and the positions of some keys
// are P.
TEST_P(TiledPrecision, TakesTheSameSideOfKinksAsTheComposedForm) {
  for (const ShapeCase& one : shape_cases()) {
    if (!one.kinks) continue;
    // Score modifications of tests bend elsewhere.
    if (one.name.starts_with("pair_") || one.name.starts_with("score_mod_")) continue;
    for (const Sizes& sizes : {Sizes{2, 1, 67, 20, 17}, Sizes{1, 2, several_tiles(), 16, 16}}) {
      SCOPED_TRACE(formatted("{} T {}", one.name, sizes.length));
      const Outcome half = compute(one, sizes, DType::f64, true, 0, crossed(0));
      EXPECT_EQ(distance_to_kinks(one, sizes, crossed(0)), 0);
      expect_equal(half, compute(one, sizes, DType::f64, false, 0, crossed(0)));
      EXPECT_EQ(distance_to_kinks(one, sizes, crossed(20)), 0);
      expect_equal(compute(one, sizes, DType::f64, true, 0, crossed(20)),
                   compute(one, sizes, DType::f64, false, 0, crossed(20)));

      // At an integer the table takes the side of larger positions: gates a little above 1/2 change almost nothing,
      // gates below do.
      if (one.name.find("table") == std::string::npos) continue;
      const Outcome above = compute(one, sizes, DType::f64, true, 0, crossed(1e-5)),
                    below = compute(one, sizes, DType::f64, true, 0, crossed(-1e-5));
      const std::string of_gates = half.gradients.contains("gate_query") ? "gate_query" : "q";
      const Tensor& expected = half.gradients.at(of_gates);
      EXPECT_LE(largest_difference(above.gradients.at(of_gates), expected), 1e-3 * largest(expected));
      EXPECT_GE(largest_difference(below.gradients.at(of_gates), expected), 1e-2 * largest(expected));
    }
  }
}

}  // namespace tiled_precision_test
}  // namespace tally
