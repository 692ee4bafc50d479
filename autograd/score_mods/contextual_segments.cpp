// Any piecewise linear function of contextual positions (arXiv 2405.18719). One matmul of segments with a query makes
// the table of its row. A pair reads one value and one slope, for any number of hidden units.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct Segments {
  static constexpr bool knots = true;
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit); }
  static constexpr auto bias(const auto& p) { return p.entry; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(contextual_segments, Segments);

#ifndef TALLY_SCORE_MOD_ONLY

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/score.hpp"

namespace tally {

namespace {

// Beyond all positions: f32 represents integer sums of gates exactly up to here.
constexpr double farthest_knot = 1 << 24;

Tensor number(double x, const Tensor& like) { return Tensor::full({1}, x, like.dtype(), like.device()); }

// x [N] sorted in ascending order, by counting smaller elements. N is small: the width of a hidden layer.
Tensor ascending(const Tensor& x) {
  const Tensor one = number(1, x), zero = number(0, x);
  const auto count = [&](const Tensor& truth) { return where(truth, one, zero); };
  const Tensor index = cumsum(broadcast_to(one, x.shape()));  // from 1 on
  const Tensor row = unsqueeze(x, 1), column = unsqueeze(x, 0);
  const Tensor earlier = count(equal(row, column)) * count(less(unsqueeze(index, 0), unsqueeze(index, 1)));
  const Tensor rank = sum(count(less(column, row)) + earlier, {1}) + 1.0;
  return sum(where(equal(unsqueeze(index, 1), unsqueeze(rank, 0)), column, zero), {1});
}

// The kinks of a hidden layer's units, and 0. A unit without a kink at a positive number gets one at either end.
Tensor kinks(const Tensor& weight, const Tensor& bias) {
  const Tensor zero = number(0, weight), most = number(farthest_knot, weight);
  const Tensor slope = abs(weight), steep = less(abs(bias), slope * farthest_knot);  // 0 is not
  const Tensor at = negate(bias) / where(steep, weight, number(1, weight));
  const Tensor inside = where(less(zero, at), at, zero);
  return concat(std::vector<Tensor>{zero, ascending(where(steep, inside, most))}, 0);
}

}  // namespace

AppliedScoreMod contextual_segments(const Tensor& table, const Tensor& knots, const Gates& gates) {
  return {&score_mod_contextual_segments, {}, {}, gates, table, knots};
}

HiddenSegments hidden_segments(const Tensor& weight, const Tensor& bias) {
  Tensor knots, on;  // on [N, N + 1]: whether a unit is above 0 in the middle of a segment, thus in all of it
  {
    const NoGrad constant;
    knots = kinks(weight.detach(), bias.detach());
    const std::int64_t count = knots.size(0);
    const Tensor next = concat(std::vector<Tensor>{slice(knots, 0, 1, count), number(2 * farthest_knot, knots)}, 0);
    const Tensor middle = unsqueeze((knots + next) * 0.5, 0);
    const Tensor unit = unsqueeze(weight, 1) * middle + unsqueeze(bias, 1);
    on = where(less(number(0, unit), unit), number(1, unit), number(0, unit));
  }
  const Tensor slope = on * unsqueeze(weight, 1);
  const Tensor value = slope * unsqueeze(knots, 0) + on * unsqueeze(bias, 1);
  const Tensor both = concat(std::vector<Tensor>{unsqueeze(value, 2), unsqueeze(slope, 2)}, 2);
  return {knots, reshape(both, {weight.size(0), 2 * knots.size(0)})};
}

}  // namespace tally

#endif
