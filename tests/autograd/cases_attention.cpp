// Tiled attention with some scores; tests/nn has every one. The reference is the formula in loops, one logit after the
// other.
#include <cmath>

#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

using Kind = Operand::Kind;

constexpr double scale = 0.6;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// The term that a shape adds to the logit of query t (of T, the last of K tokens) and key j; p is the sum of gates from
// j to it.
using Term = std::function<double(const std::vector<Array>& x, std::int64_t b, std::int64_t h, std::int64_t t,
                                  std::int64_t j, double p)>;

struct Rule {
  Term term = [](const auto&, auto, auto, auto, auto, double) { return 0.0; };
  int gate_query = 0, gate_key = 1;  // operands that gates come from
  bool sticks = false;               // logits have the stick taken from them
  SoftmaxRule::Kind kind = SoftmaxRule::Kind::softmax;
  int sink = -1, rest = -1;
  AttentionMask mask = {};
};

double product_of(const Array& a, const Array& b, std::int64_t batch, std::int64_t head, std::int64_t t,
                  std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < a.shape[3]; ++c) sum += a[{batch, head, t, c}] * b[{batch, head, j, c}];
  return scale * sum;
}

// Output row t of one head; x holds q, k, v and the inputs of the rule.
std::vector<double> attend_row(const std::vector<Array>& x, const Rule& rule, std::int64_t b, std::int64_t h,
                               std::int64_t t) {
  const std::int64_t query = x[1].shape[2] - x[0].shape[2] + t, width = x[2].shape[3];
  const auto at = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  std::vector<double> weight(at(query + 1)), output(at(width));
  const bool divides = rule.kind == SoftmaxRule::Kind::softmax;
  double position = 0, taken = 0, left = 1;
  double sum = divides ? 0 : 1;
  if (rule.sink >= 0) sum = std::exp(x[at(rule.sink)][{h}]);
  for (std::int64_t j = query; j >= 0; --j) {
    const bool near = rule.mask.window == 0 || query - j < rule.mask.window;
    if (!near && j >= rule.mask.first) continue;
    position += sigmoid_of(product_of(x[at(rule.gate_query)], x[at(rule.gate_key)], b, h, t, j));
    const double logit = product_of(x[0], x[1], b, h, t, j) + rule.term(x, b, h, t, j, position);
    if (rule.sticks && j == query) continue;
    if (rule.sticks) taken += softplus_of(logit);
    weight[at(j)] = std::exp(logit - taken);
    if (divides) sum += weight[at(j)];
  }
  for (const double w : weight) left -= w / sum;
  for (std::int64_t c = 0; c < width; ++c) {
    for (std::int64_t j = 0; j <= query; ++j) output[at(c)] += weight[at(j)] / sum * x[2][{b, h, j, c}];
    if (rule.rest >= 0) output[at(c)] += left * x[at(rule.rest)][{b, h, t, c}];
  }
  return output;
}

std::function<Array(const std::vector<Array>&)> reference_of(const Rule& rule) {
  return [rule](const std::vector<Array>& x) {
    const Shape& q = x[0].shape;
    Array y({q[0], q[1], q[2], x[2].shape[3]});
    for (std::int64_t b = 0; b < q[0]; ++b) {
      for (std::int64_t h = 0; h < q[1]; ++h) {
        for (std::int64_t t = 0; t < q[2]; ++t) {
          const std::vector<double> row = attend_row(x, rule, b, h, t);
          for (std::int64_t c = 0; c < y.shape[3]; ++c) y[{b, h, t, c}] = row[static_cast<std::size_t>(c)];
        }
      }
    }
    return y;
  };
}

using Tensors = std::vector<Tensor>;

// q, k, v and further operands (up to `largest`), whose shapes follow from B, H, T and K (T < K where rows are
// generated one by one).
OpCase attention_case(const std::string& name, const Rule& rule,
                      const std::function<Shapes(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& further,
                      const std::function<void(const Tensors&, Score&)>& make, double largest = 1.5) {
  const auto shapes = [&](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t k) {
    Shapes all{{b, h, t, 3}, {b, h, k, 3}, {b, h, k, 2}};
    for (const Shape& shape : further(b, h, t, k)) all.push_back(shape);
    return all;
  };
  std::vector<Shapes> small{shapes(2, 2, 4, 4), shapes(1, 1, 1, 1), shapes(0, 1, 3, 3), shapes(1, 2, 2, 5)};
  std::vector<Operand> operands(small[0].size(), Operand{Kind::real, -largest, largest});
  std::fill_n(operands.begin(), 3, Operand{Kind::real, -1.5, 1.5});
  return {.name = name,
          .kernels = {"attention", "attention_backward"},
          .operands = std::move(operands),
          .shapes = std::move(small),
          .large = shapes(1, 2, 330, 330),
          .run =
              [make, mask = rule.mask](const Tensors& x) {
                Score score;
                make(x, score);
                return tiled_attention({x[0], x[1], x[2], scale, mask}, score);
              },
          .reference = reference_of(rule),
          .tolerance = 64};
}

}  // namespace

std::vector<OpCase> attention_cases() {
  const auto nothing = [](auto, auto, auto, auto) { return Shapes{}; };
  const auto rows_of = [](std::int64_t width) {
    return [width](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t) { return Shapes{{b, h, t, width}}; };
  };
  const auto table = [](const std::vector<Array>& x, auto b, auto h, auto t, auto, double p) {
    const std::int64_t last = x[3].shape[3] - 1;
    const double c = std::min(p, static_cast<double>(last));
    const auto low = static_cast<std::int64_t>(c);
    const double w = c - static_cast<double>(low);
    return (1 - w) * x[3][{b, h, t, low}] + w * x[3][{b, h, t, std::min(low + 1, last)}];
  };

  std::vector<OpCase> cases;
  cases.push_back(attention_case("attention", {}, nothing, [](const Tensors&, Score&) {}));
  cases.push_back(attention_case("attention_table", {.term = table}, rows_of(3),
                                 [](const Tensors& x, Score& score) { score.add_score_mod(contextual_table(x[3])); }));
  cases.back().kernels.push_back("attention_prefix_sums");
  cases.push_back(attention_case(
      "attention_table_own_gates", {.term = table, .gate_query = 5, .gate_key = 4},
      [](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t k) {
        return Shapes{{b, h, t, 3}, {b, h, k, 3}, {b, h, t, 3}};
      },
      [](const Tensors& x, Score& score) {
        score.add_score_mod(contextual_table(x[3], {x[5], x[4]}));
      }));
  cases.push_back(attention_case(
      "attention_slope",
      {.term = [](const std::vector<Array>& x, auto, auto h, auto, auto, double p) { return x[3][{h}] * p; }},
      [](auto, std::int64_t h, auto, auto) { return Shapes{{h}}; },
      [](const Tensors& x, Score& score) { score.add_score_mod(contextual_slope(x[3])); }));
  cases.push_back(attention_case(
      "attention_segments",
      {.term =
           [](const std::vector<Array>& x, auto b, auto h, auto t, auto, double p) {
             double sum = 0;
             for (std::int64_t n = 0; n < 2; ++n) {
               sum += x[3][{b, h, t, n}] * std::max(0.0, x[4][{n}] * p + x[5][{n}]);
             }
             return sum;
           }},
      [](std::int64_t b, std::int64_t h, std::int64_t t, auto) {
        return Shapes{{b, h, t, 2}, {2}, {2}};
      },
      [](const Tensors& x, Score& score) {
        const HiddenSegments segments = hidden_segments(x[4], x[5]);
        score.add_score_mod(contextual_segments(matmul(x[3], segments.units), segments.knots));
      },
      0.2));
  using By = SoftmaxRule::Kind;
  cases.push_back(attention_case("attention_stick_breaking", {.sticks = true, .kind = By::exp, .rest = 3}, rows_of(2),
                                 [](const Tensors& x, Score& score) {
                                   score.add_score_mod(stick_breaking());
                                   score.set_softmax_rule({By::exp, {}, 0, x[3]});
                                 }));
  const auto sink_and_rest = [](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t) {
    return Shapes{{h}, {b, h, t, 2}};
  };
  cases.push_back(
      attention_case("attention_sink", {.sink = 3, .rest = 4}, sink_and_rest, [](const Tensors& x, Score& score) {
        score.set_softmax_rule({By::softmax, x[3], 0, x[4]});
      }));
  const AttentionMask mask{.window = 3, .first = 1};
  cases.push_back(attention_case("attention_window", {.mask = mask}, nothing, [](const Tensors&, Score&) {}));
  cases.push_back(attention_case(
      "attention_toeplitz",
      {.term =
           [](const std::vector<Array>& x, auto, auto h, auto t, auto j, double) {
             return x[3][{h, x[1].shape[2] - x[0].shape[2] + t - j}];
           }},
      [](auto, std::int64_t h, auto, std::int64_t k) {
        return Shapes{{h, k}};
      },
      [](const Tensors& x, Score& score) { score.biases.push_back(Toeplitz{x[3]}); }));
  cases.push_back(attention_case(
      "attention_row_column",
      {.term =
           [](const std::vector<Array>& x, auto b, auto h, auto t, auto j, double) {
             return x[3][{b, h, t}] + x[4][{b, h, j}];
           }},
      [](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t k) {
        return Shapes{{b, h, t}, {b, h, k}};
      },
      [](const Tensors& x, Score& score) {
        score.biases.push_back(RowColumn{cast(x[3], DType::f64), cast(x[4], DType::f64)});
      }));
  return cases;
}

}  // namespace tally::testing
