// Tiled attention against the composed form of the same shapes: outputs and every gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "nn/composed.hpp"
#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally {
namespace {

using testing::normal_tensor;

class Tiled : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Tiled);

struct Sizes {
  std::int64_t batch, heads, length, width, value_width;
};

// The parts of a score and how its tensors are made; every tensor comes from `leaf`, so that gradients can be compared.
using Leaf = std::function<Tensor(const std::string& name, const Shape& shape, double deviation, DType dtype)>;
using Make = std::function<void(const Sizes& sizes, const Leaf& leaf, Score& score)>;

struct ShapeCase {
  std::string name;
  Make make;
  // Whether rounding decides between two derivatives somewhere: at positions beside an integer, where the table bends.
  bool kinks = false;
};

Tensor times(const Tensor& x, double factor) { return multiply(x, factor); }

std::vector<ShapeCase> shape_cases() {
  const auto gates = [](const Sizes& s, const Leaf& leaf) {
    return Gates{leaf("gate_query", {s.batch, s.heads, s.length, s.width}, 1, DType::f64),
                 leaf("gate_key", {s.batch, s.heads, s.length, s.width}, 1, DType::f64)};
  };
  const auto table = [](const Sizes& s, const Leaf& leaf, std::int64_t positions) {
    return leaf("z", {s.batch, s.heads, s.length, positions + 1}, 1, DType::f64);
  };
  return {
      {"plain", [](const Sizes&, const Leaf&, Score&) {}},
      {"table",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 16), {}});
       },
       true},
      {"table_never_saturated",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, s.length + 1), {}});
       },
       true},
      {"table_straight",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor places = add(cumsum(Tensor::full({s.length + 2}, 1.0, DType::f64, default_device())), -1.0);
         const Tensor rise = leaf("rise", {s.batch, s.heads, s.length, 1}, 0.2, DType::f64);
         score.set_scan(
             ContextualTable{rise * (places.dtype() == rise.dtype() ? places : places.to(rise.dtype())), {}});
       }},
      {"table_always_saturated",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 0), {}});
       }},
      {"table_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 9), gates(s, leaf)});
       },
       true},
      {"slope",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualSlope{leaf("slope", {s.heads}, 0.1, DType::f64), {}});
       }},
      {"slope_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualSlope{leaf("slope", {s.heads}, 0.1, DType::f64), gates(s, leaf)});
       }},
      {"mlp",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualMlp{leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64),
                                      leaf("w", {5}, 0.3, DType::f64),
                                      leaf("b", {5}, 1, DType::f64),
                                      {}});
       },
       true},
      {"mlp_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualMlp{leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64),
                                      leaf("w", {5}, 0.3, DType::f64), leaf("b", {5}, 1, DType::f64), gates(s, leaf)});
       },
       true},
      {"stick", [](const Sizes&, const Leaf&, Score& score) { score.set_scan(StickBreaking{}); }},
      {"stick_attend_current",
       [](const Sizes&, const Leaf&, Score& score) {
         score.set_scan(StickBreaking{true, {}});
       }},
      {"stick_remainder",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(StickBreaking{false, leaf("rest", {s.batch, s.heads, s.length, s.value_width}, 1, DType::f64)});
       }},
      {"toeplitz",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length + 3}, 1, DType::f64)});
       }},
      // Falls so fast that far tiles are left out.
      {"toeplitz_steep",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor distance = cumsum(Tensor::full({1, s.length}, 1.0, DType::f64, default_device()));
         const Tensor slopes = abs(leaf("slopes", {s.heads, 1}, 1, DType::f64)) + 0.5;
         score.biases.push_back(Toeplitz{negate(slopes * distance.to(slopes.dtype()))});
       }},
      {"row_column",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor falling = times(cumsum(abs(leaf("falling", {s.batch, s.heads, s.length}, 1, DType::f64))), -0.2);
         score.biases.push_back(RowColumn{falling + 500.0, negate(falling) + -500.0});
       }},
      // Sums that begin at 0, as those of forget gates, and fall beyond where e^-sum is a number.
      {"row_column_from_zero",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor total = negate(cumsum(abs(leaf("falling", {s.batch, s.heads, s.length}, 1, DType::f64)) + 6.0));
         score.biases.push_back(RowColumn{total, negate(total)});
       }},
      {"column_alone",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
       }},
      {"row_alone",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowColumn{leaf("row", {s.batch, s.heads, s.length}, 1, DType::f64), {}});
       }},
      {"row_toeplitz",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, s.length}, 1, DType::f64)});
       }},
      {"row_toeplitz_short",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64)});
       }},
      {"row_toeplitz_capped",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
       }},
      {"dense",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Dense{leaf("dense", {1, s.heads, s.length, s.length}, 1, DType::f64)});
       }},
      {"product",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Shape factor{s.batch, s.heads, s.length, 3};
         score.biases.push_back(Product{leaf("r", factor, 0.5, DType::f64), leaf("g", factor, 1, DType::f64)});
       }},
      // Gates see the score without the product.
      {"slope_and_product",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualSlope{leaf("slope", {s.heads}, 0.1, DType::f64), {}});
         const Shape factor{s.batch, s.heads, s.length, 3};
         score.biases.push_back(Product{leaf("r", factor, 0.5, DType::f64), leaf("g", factor, 1, DType::f64)});
       }},
      {"table_and_every_bias",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 16), gates(s, leaf)});
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64)});
         score.biases.push_back(Dense{leaf("dense", {s.batch, 1, s.length, s.length}, 1, DType::f64)});
       },
       true},
      {"stick_and_toeplitz",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(StickBreaking{});
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       }},
  };
}

struct Outcome {
  Tensor output;
  std::map<std::string, Tensor> gradients;
};

Outcome compute(const ShapeCase& one, const Sizes& sizes, DType dtype, bool tiled, double dropout = 0) {
  std::map<std::string, Tensor> leaves;
  const Leaf leaf = [&](const std::string& name, const Shape& shape, double deviation, DType) {
    Tensor tensor = normal_tensor(name, shape, deviation).to(dtype);
    set_requires_grad(tensor);
    return leaves[name] = tensor;
  };
  AttentionOperands in{leaf("q", {sizes.batch, sizes.heads, sizes.length, sizes.width}, 1.5, dtype),
                       leaf("k", {sizes.batch, sizes.heads, sizes.length, sizes.width}, 1.5, dtype),
                       leaf("v", {sizes.batch, sizes.heads, sizes.length, sizes.value_width}, 1, dtype),
                       1.0 / std::sqrt(static_cast<double>(sizes.width))};
  Score score;
  one.make(sizes, leaf, score);
  for (Bias& bias : score.biases) {
    if (auto* row_column = std::get_if<RowColumn>(&bias)) {
      if (row_column->row.defined()) row_column->row = cast(row_column->row, DType::f64);
      if (row_column->column.defined()) row_column->column = cast(row_column->column, DType::f64);
    }
  }
  Outcome outcome;
  const Dropout drop(Initializer(0, StartValues::gpt2), "weights", dropout);
  const Pass pass{.training = true, .seed = 3, .step = 5};
  in.dropout = drop.rate(pass);
  in.dropout_stream = drop.stream(pass);
  struct Plain final : Encoding {};
  outcome.output = tiled ? tiled_attention(in, score) : composed_attention(in, score, Plain{}, drop, pass);
  backward(outcome.output, normal_tensor("d_output", outcome.output.shape()).to(dtype));
  for (const auto& [name, tensor] : leaves) {
    if (gradient(tensor).defined()) outcome.gradients[name] = gradient(tensor);
  }
  return outcome;
}

double largest(const Tensor& x) {
  const std::vector<double> values = x.to(DType::f64).to_vector<double>();
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  EXPECT_EQ(x.size(), y.size());
  double difference = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    EXPECT_FALSE(std::isnan(x[n]) || std::isnan(y[n]));
    difference = std::max(difference, std::abs(x[n] - y[n]));
  }
  return difference;
}

// Several tiles of keys; those of a GPU are smaller, and slower to execute here.
std::int64_t several_tiles() { return default_device() == Device{} ? 300 : 100; }

std::vector<Sizes> all_sizes() {
  // One token; fewer rows than lanes; a tile and a bit; several tiles of keys, several shares of a head; widths that
  // are no whole vectors.
  return {{2, 1, 1, 8, 8}, {1, 3, 5, 4, 3}, {1, 2, 67, 20, 17}, {1, 2, several_tiles(), 16, 16}};
}

void expect_equal_forms(double dropout) {
  for (const ShapeCase& one : shape_cases()) {
    for (const Sizes& sizes : all_sizes()) {
      SCOPED_TRACE(concat(one.name, " T ", sizes.length));
      const Outcome tiled = compute(one, sizes, DType::f64, true, dropout),
                    composed = compute(one, sizes, DType::f64, false, dropout);
      const double scale = largest(composed.output);
      EXPECT_LE(largest_difference(tiled.output, composed.output), 1e-10 * scale);
      EXPECT_EQ(tiled.gradients.size(), composed.gradients.size());
      for (const auto& [name, expected] : composed.gradients) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(tiled.gradients.contains(name));
        EXPECT_LE(largest_difference(tiled.gradients.at(name), expected), 1e-10 * std::max(1e-3, largest(expected)));
      }
    }
  }
}

TEST_P(Tiled, EqualsTheComposedFormInDouble) { expect_equal_forms(0); }
TEST_P(Tiled, DropsTheSameWeightsAsTheComposedForm) { expect_equal_forms(0.25); }

// The error of f32 against f64 is at most twice (gradients: three times) that of the composed form, and one rounding of
// the largest value (gradients: two for each of a da and a do.o, which cancel). All that reaches the scores carries the
// rounding of dl = a (da - do.o), where the composed form sums a da in double instead of taking do.o from the rounded
// output: so that rounding is counted in units of q's gradient. Numbers to which the whole triangle adds, with terms
// that cancel, are held to 1e-4 of their size.
TEST_P(Tiled, IsAsPreciseAsTheComposedFormInSingle) {
  if (testing::repeats_kernels_in_vain(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  constexpr double rounding = 1.2e-7;
  const Sizes sizes{1, 2, several_tiles(), 16, 16};
  const auto sums_the_triangle = [](const std::string& name) {
    return name == "slope" || name == "slopes" || name == "rise" || name == "falling";
  };
  const auto sums_rows = [](const std::string& name) {
    return name == "row" || name == "by_row" || name == "z" || name == "column";
  };
  for (const ShapeCase& one : shape_cases()) {
    SCOPED_TRACE(one.name);
    const Outcome exact = compute(one, sizes, DType::f64, false), tiled = compute(one, sizes, DType::f32, true),
                  composed = compute(one, sizes, DType::f32, false);
    EXPECT_LE(largest_difference(tiled.output, exact.output),
              2 * largest_difference(composed.output, exact.output) + rounding * largest(exact.output));
    if (one.kinks) continue;
    for (const auto& [name, expected] : exact.gradients) {
      const double found = largest_difference(tiled.gradients.at(name), expected);
      const double scale = std::max(largest(expected), largest(exact.gradients.at("q")));
      if (sums_the_triangle(name)) {
        EXPECT_LE(found, 1e-4 * scale) << name;
      } else {
        EXPECT_LE(found, 3 * largest_difference(composed.gradients.at(name), expected) +
                             (sums_rows(name) ? 1e-6 : 4 * rounding) * scale)
            << name;
      }
    }
  }
}

TEST_P(Tiled, GivesTheSameBitsForAnyNumberOfThreads) {
  if (testing::repeats_kernels_in_vain(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  const int before = thread_count();
  for (const ShapeCase& one : shape_cases()) {
    SCOPED_TRACE(one.name);
    for (const Sizes& sizes : {Sizes{1, 2, 2 * several_tiles(), 16, 16}, Sizes{3, 7, 70, 8, 8}}) {
      set_thread_count(1);
      const Outcome alone = compute(one, sizes, DType::f32, true);
      set_thread_count(3);
      const Outcome shared = compute(one, sizes, DType::f32, true);
      EXPECT_EQ(alone.output.to_vector<float>(), shared.output.to_vector<float>());
      for (const auto& [name, value] : alone.gradients) {
        EXPECT_EQ(value.to_vector<float>(), shared.gradients.at(name).to_vector<float>()) << name;
      }
    }
  }
  set_thread_count(before);
}

// Rows at the end of a sequence are what the same rows are among all: a text is generated token by token.
TEST_P(Tiled, TakesTheLastRowsAlone) {
  const Sizes all{1, 2, 150, 8, 8};
  for (const ShapeCase& one : shape_cases()) {
    SCOPED_TRACE(one.name);
    std::map<std::string, Tensor> leaves;
    const auto attention = [&](std::int64_t rows) {
      // Tensors with an axis of queries keep their last rows.
      const Leaf leaf = [&](const std::string& name, const Shape& shape, double deviation, DType) {
        Tensor tensor = normal_tensor(name, shape, deviation);
        const bool by_query = name == "z" || name == "u" || name == "rest" || name == "by_row" || name == "rise" ||
                              name == "dense" || name == "row" || name == "q" || name == "gate_query" || name == "r";
        return by_query ? slice(tensor, 2, shape[2] - rows, shape[2]) : tensor;
      };
      const Shape shape{all.batch, all.heads, all.length, all.width};
      const AttentionOperands in{leaf("q", shape, 1.5, DType::f64), leaf("k", shape, 1.5, DType::f64),
                                 leaf("v", shape, 1, DType::f64), 0.35};
      Score score;
      one.make(all, leaf, score);
      for (Bias& bias : score.biases) {
        auto* row_column = std::get_if<RowColumn>(&bias);
        if (row_column == nullptr || !row_column->row.defined()) continue;
        const std::int64_t length = row_column->row.size(2);
        row_column->row = slice(row_column->row, 2, length - rows, length);
      }
      return tiled_attention(in, score);
    };
    const Tensor whole = attention(all.length);
    for (const std::int64_t rows : {1, 5, 80}) {
      EXPECT_LE(largest_difference(attention(rows), slice(whole, 2, all.length - rows, all.length)),
                1e-12 * largest(whole));
    }
  }
}

TEST_P(Tiled, NamesTheOperandThatDoesNotFit) {
  const auto error = [](auto&& change) {
    AttentionOperands in{normal_tensor("q", {1, 2, 4, 8}), normal_tensor("k", {1, 2, 4, 8}),
                         normal_tensor("v", {1, 2, 4, 8}), 1};
    Score score;
    change(in, score);
    try {
      tiled_attention(in, score);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was refused");
  };
  const auto holds = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.k = normal_tensor("k", {1, 2, 4, 6}); }), "[1, 2, 4, 6]"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.v = normal_tensor("v", {1, 2, 3, 8}); }), "[1, 2, 3, 8]"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.q = normal_tensor("q", {1, 2, 5, 8}); }), "5 of them for 4 keys"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.q = normal_tensor("q", {2, 4, 8}); }), "q must be [B, H, tokens"));
  EXPECT_TRUE(holds(error([](auto&, auto& score) {
                      score.set_scan(ContextualTable{normal_tensor("z", {1, 2, 3, 5}), {}});
                    }),
                    "the table of positions must be f64 [1, 2, 4, 5]"));
  EXPECT_TRUE(
      holds(error([](auto&, auto& score) {
              score.biases.push_back(Product{normal_tensor("r", {1, 2, 4, 3}), normal_tensor("g", {1, 2, 5, 3})});
            }),
            "the key of a product must be f64 and as [1, 2, 4, 8] but for its width, got f64 [1, 2, 5, 3]"));
  EXPECT_TRUE(holds(error([](auto&, auto& score) {
                      score.biases.push_back(Toeplitz{normal_tensor("b", {2, 3})});
                    }),
                    "3 distances does not cover 4 tokens"));
  EXPECT_TRUE(holds(error([](auto&, auto& score) {
                      score.biases.push_back(RowColumn{normal_tensor("r", {1, 2, 4}).to(DType::f32), {}});
                    }),
                    "a row bias must be f64"));
}

}  // namespace
}  // namespace tally
