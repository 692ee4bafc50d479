#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/ops.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

using Kind = Operand::Kind;

constexpr RandomStream dropout_stream{7, 3, 11};
constexpr double dropout_rate = 0.3;

Array embedding_reference(const std::vector<Array>& x) {
  Shape shape = x[1].shape;
  shape.append(x[0].shape[1]);
  Array y(shape);
  for_each_index(shape, [&](const Index& index) {
    Index id = index;
    id.rank -= 1;
    y[index] = x[0][{static_cast<std::int64_t>(x[1][id]), index.back()}];
  });
  return y;
}

OpCase read_distance_case(const std::string& name, bool cap, std::vector<Shapes> shapes, const Shape& large,
                          std::int64_t length, std::int64_t large_length) {
  const auto length_of = [=](const Shape& x) {
    return x.back(1) == 1 ? (x == large ? large_length : length) : x.back(1);
  };
  return {.name = name,
          .kernels = {"read_distance", "read_distance_backward"},
          .operands = {{Kind::real, -1, 1}},
          .shapes = std::move(shapes),
          .large = {large},
          .run = [=](const auto& x) { return read_distance(x[0], length_of(x[0].shape()), cap); },
          .reference =
              [=](const auto& x) {
                Shape shape = x[0].shape;
                const std::int64_t width = shape.back();
                shape[shape.rank - 2] = shape[shape.rank - 1] = length_of(x[0].shape);
                Array y(shape);
                for_each_index(shape, [&](const Index& index) {
                  const std::int64_t distance = index.back(1) - index.back();
                  if (distance < 0 || (distance >= width && !cap)) return;
                  y[index] = x[0][with_last(index, std::min(distance, width - 1))];
                });
                return y;
              }};
}

OpCase interpolate_case(const std::string& name, bool causal, std::vector<Shapes> shapes, Shapes large,
                        double highest) {
  return {.name = name,
          .kernels = {"interpolate", "interpolate_backward"},
          .operands = {{Kind::real, -1, 1}, {Kind::off_integers, 0, highest}},
          .shapes = std::move(shapes),
          .large = std::move(large),
          .run = [=](const auto& x) { return causal ? interpolate_causal(x[0], x[1]) : interpolate(x[0], x[1]); },
          .reference =
              [=](const auto& x) {
                Array y(x[1].shape);
                const std::int64_t last = x[0].shape.back() - 1;
                for_each_index(y.shape, [&](const Index& index) {
                  if (causal && index.back() > index.back(1)) return;
                  const double c = std::min(x[1][index], static_cast<double>(last));
                  const auto below = static_cast<std::int64_t>(std::floor(c));
                  const double w = c - static_cast<double>(below);
                  y[index] =
                      (1 - w) * x[0][with_last(index, below)] + w * x[0][with_last(index, std::min(below + 1, last))];
                });
                return y;
              }};
}

// x with the first dims rotated by pairs. cosine_sine(index, pair) returns the cosine and sine of an angle.
template <class CosineSine>
Array rotated(const Array& x, bool interleaved, std::int64_t pairs, const CosineSine& cosine_sine) {
  Array y = x;
  for_each_index(y.shape, [&](const Index& index) {
    const std::int64_t dim = index.back();
    if (dim >= 2 * pairs) return;
    const std::int64_t pair = interleaved ? dim / 2 : dim % pairs;
    const bool first = interleaved ? dim % 2 == 0 : dim < pairs;
    const double a = x[with_last(index, interleaved ? 2 * pair : pair)];
    const double b = x[with_last(index, interleaved ? 2 * pair + 1 : pair + pairs)];
    const auto [cosine, sine] = cosine_sine(index, pair);
    y[index] = first ? a * cosine - b * sine : a * sine + b * cosine;
  });
  return y;
}

OpCase rotate_case(const std::string& name, bool interleaved, std::int64_t width, std::int64_t pairs) {
  return {.name = name,
          .kernels = {"rotate_pairs"},
          .operands = {{Kind::real, -1, 1}, {Kind::constant, -1, 1}, {Kind::constant, -1, 1}},
          .shapes = {{{2, 3, width}, {3, pairs}, {3, pairs}},
                     {{1, width}, {1, pairs}, {1, pairs}},
                     {{0, 2, width}, {2, pairs}, {2, pairs}}},
          .large = {{3, 2, 777, width}, {777, pairs}, {777, pairs}},
          .run = [=](const auto& x) { return rotate_pairs(x[0], x[1], x[2], interleaved); },
          .reference =
              [=](const auto& x) {
                return rotated(x[0], interleaved, pairs, [&](const Index& index, std::int64_t pair) {
                  return std::pair(x[1][{index.back(1), pair}], x[2][{index.back(1), pair}]);
                });
              }};
}

// The same by angles that take gradients: of each row, and of one head for all.
OpCase turn_case(const std::string& name, bool interleaved, std::int64_t width, std::int64_t pairs) {
  return {.name = name,
          .kernels = {"rotate_pairs"},
          .operands = {{Kind::real, -1, 1}, {Kind::real, -4, 4}},
          .shapes = {{{2, 3, width}, {2, 3, pairs}},
                     {{2, 2, 3, width}, {2, 1, 3, pairs}},
                     {{1, width}, {1, pairs}},
                     {{0, 2, width}, {2, pairs}}},
          .large = {{3, 2, 77, width}, {3, 1, 77, pairs}},
          .run = [=](const auto& x) { return turn_pairs(x[0], x[1], interleaved); },
          .reference =
              [=](const auto& x) {
                return rotated(x[0], interleaved, pairs, [&](const Index& index, std::int64_t pair) {
                  const double angle = x[1][with_last(index, pair)];
                  return std::pair(std::cos(angle), std::sin(angle));
                });
              }};
}

Array cross_entropy_reference(const std::vector<Array>& x) {
  double total = 0, count = 0;
  for_each_index(x[1].shape, [&](const Index& row) {
    if (x[2][row] == 0) return;
    Index index = row;
    index.append(0);
    const double target = x[0][with_last(index, static_cast<std::int64_t>(x[1][row]))];
    double others = 0;
    for (std::int64_t v = 0; v < x[0].shape.back(); ++v) others += std::exp(x[0][with_last(index, v)] - target);
    total += std::log(others);
    ++count;
  });
  Array loss{Shape{}};
  loss.values[0] = total / count;
  return loss;
}

// Cross entropy of x head^T.
Array linear_cross_entropy_reference(const std::vector<Array>& x) {
  Shape shape = x[0].shape;
  shape[shape.rank - 1] = x[1].shape[0];
  Array logits(shape);
  for_each_index(shape, [&](const Index& index) {
    for (std::int64_t d = 0; d < x[0].shape.back(); ++d) {
      logits[index] += x[0][with_last(index, d)] * x[1][{index.back(), d}];
    }
  });
  return cross_entropy_reference({logits, x[2], x[3]});
}

// In strips of strip_rows rows.
Tensor run_linear_cross_entropy(const std::vector<Tensor>& x, std::int64_t strip_rows) {
  const auto count = static_cast<double>(counted_targets(x[2], x[3], x[1].size(0)));
  const Tensor weight = Tensor::scalar(1 / count, x[0].dtype(), x[0].device());
  return linear_cross_entropy(x[0], x[1], x[2], x[3], weight, strip_rows).loss;
}

OpCase linear_cross_entropy_case(const std::string& name, std::int64_t strip_rows, std::int64_t large_strip_rows) {
  return {
      .name = name,
      .kernels = {"matmul", "cross_entropy", "cross_entropy_backward"},
      .operands = {{Kind::real, -2, 2}, {Kind::real, -1, 1}, {Kind::id, 0, 4}, {Kind::flag}},
      .shapes = {{{2, 3, 3}, {4, 3}, {2, 3}, {2, 3}}, {{5, 1}, {7, 1}, {5}, {5}}, {{4, 1, 6}, {5, 6}, {4, 1}, {4, 1}}},
      .large = {{3, 101, 20}, {1030, 20}, {3, 101}, {3, 101}},
      .run =
          [=](const auto& x) {
            return run_linear_cross_entropy(x, x[0].numel() > 1000 ? large_strip_rows : strip_rows);
          },
      .reference = linear_cross_entropy_reference,
      .tolerance = 16};
}

}  // namespace

std::vector<OpCase> index_cases() {
  return {
      {.name = "embedding",
       .kernels = {"embedding", "embedding_backward"},
       .operands = {{Kind::real, -1, 1}, {Kind::id, 0, 4}},
       .shapes = {{{4, 3}, {2, 5}}, {{4, 1}, {1}}, {{5, 2}, {}}, {{4, 3}, {0, 2}}, {{4, 0}, {2}}, {{4, 2}, {131}}},
       .large = {{4, 130}, {7, 411}},
       .run = [](const auto& x) { return embedding(x[0], x[1]); },
       .reference = embedding_reference},
      // A table of this size has its ids sorted on CUDA.
      {.name = "embedding_of_a_vocabulary",
       .kernels = {"embedding", "embedding_backward"},
       .operands = {{Kind::real, -1, 1}, {Kind::id, 0, 40}},
       .shapes = {{{40, 1}, {2, 5}}},
       .large = {{4100, 65}, {3, 70}},
       .run = [](const auto& x) { return embedding(x[0], x[1]); },
       .reference = embedding_reference},
      read_distance_case("read_distance", false, {{{2, 4, 4}}, {{4, 3}}, {{4, 6}}, {{1, 1}}, {{0, 3, 2}}},
                         {3, 150, 140}, 1, 1),
      read_distance_case("read_distance_capped", true, {{{2, 4, 3}}, {{4, 4}}, {{4, 1}}, {{0, 3, 2}}}, {3, 150, 140}, 1,
                         1),
      read_distance_case("read_distance_shared", false, {{{2, 1, 4}}, {{1, 3}}, {{1, 6}}, {{0, 1, 3}}}, {4, 1, 140}, 4,
                         150),
      read_distance_case("read_distance_shared_capped", true, {{{2, 1, 4}}, {{1, 2}}, {{1, 1}}}, {4, 1, 140}, 4, 150),
      interpolate_case("interpolate", false,
                       {{{2, 4}, {2, 5}}, {{3}, {4}}, {{2, 1}, {2, 3}}, {{2, 3}, {2, 0}}, {{0, 3}, {0, 2}}},
                       {{300, 9}, {300, 170}}, 6),
      interpolate_case("interpolate_causal", true,
                       {{{2, 4, 3}, {2, 4, 4}}, {{3, 1}, {3, 3}}, {{1, 2}, {1, 1}}, {{0, 2, 3}, {0, 2, 2}}},
                       {{2, 3, 130, 9}, {2, 3, 130, 130}}, 12),
      rotate_case("rotate_half", false, 6, 3),
      rotate_case("rotate_half_part", false, 6, 2),
      rotate_case("rotate_interleaved", true, 6, 3),
      rotate_case("rotate_interleaved_part", true, 7, 2),
      turn_case("turn_half_part", false, 7, 2),
      turn_case("turn_interleaved", true, 6, 3),
      {.name = "dropout",
       .kernels = {"dropout"},
       .operands = {{Kind::real, -1, 1}},
       .shapes = {{{4, 5}}, {{}}, {{1}}, {{0, 3}}},
       .large = {{7, 11003}},
       .run = [](const auto& x) { return dropout(x[0], dropout_rate, dropout_stream); },
       .reference =
           [](const auto& x) {
             Array y(x[0].shape);
             for (std::size_t n = 0; n < y.values.size(); ++n) {
               const bool kept = uniform_from_bits(dropout_stream.bits(n)) >= dropout_rate;
               y.values[n] = kept ? x[0].values[n] / (1 - dropout_rate) : 0;
             }
             return y;
           }},
      {.name = "cross_entropy",
       .kernels = {"cross_entropy", "cross_entropy_backward"},
       .operands = {{Kind::real, -3, 3}, {Kind::id, 0, 4}, {Kind::flag}},
       .shapes = {{{2, 3, 4}, {2, 3}, {2, 3}}, {{5, 7}, {5}, {5}}, {{4, 1, 5}, {4, 1}, {4, 1}}},
       .large = {{3, 101, 1070}, {3, 101}, {3, 101}},
       .run = [](const auto& x) { return cross_entropy(x[0], x[1], x[2]); },
       .reference = cross_entropy_reference},
      linear_cross_entropy_case("linear_cross_entropy", 2, 80),
      linear_cross_entropy_case("linear_cross_entropy_in_one_piece", 0, 0),
  };
}

}  // namespace tally::testing
