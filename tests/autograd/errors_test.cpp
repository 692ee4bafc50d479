// The messages of errors: one table of wrong calls. Every message begins with the operation's name and contains the
// wrong shapes, types or numbers.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tests/error_of.hpp"

namespace tally::errors_test {

struct WrongCall {
  std::string name;
  std::function<void()> call;
  std::vector<std::string> parts;  // of the message; the first is at its begin
};

template <class... Sizes>
Tensor floats(Sizes... sizes) {
  return Tensor::zeros({sizes...});
}
template <class... Sizes>
Tensor of(DType dtype, Sizes... sizes) {
  return Tensor::zeros({sizes...}, dtype);
}
// A mask of two positions.
Tensor both() { return Tensor::full({2}, 1, DType::boolean); }
template <class... Ids>
Tensor ids(Ids... values) {
  return Tensor::from({values...}, DType::i32);
}

const std::vector<WrongCall>& wrong_calls() {
  static const std::vector<WrongCall> all = {
      {"unary_undefined", [] { exp(Tensor()); }, {"[exp]", "undefined"}},
      {"unary_integer", [] { gelu(of(DType::i32, 2, 3)); }, {"[gelu]", "f32 or f64", "i32", "[2, 3]"}},
      {"add_shapes", [] { add(floats(2, 3), floats(4)); }, {"[add]", "[2, 3]", "[4]"}},
      {"add_undefined", [] { add(floats(2), Tensor()); }, {"[add]", "undefined"}},
      {"multiply_types", [] { multiply(floats(2), of(DType::f64, 2)); }, {"[multiply]", "f32", "f64"}},
      {"subtract_bool", [] { subtract(of(DType::boolean, 2), of(DType::boolean, 2)); }, {"[subtract]", "bool", "[2]"}},
      {"less_shapes", [] { less(floats(2), floats(3)); }, {"[less]", "[2]", "[3]"}},
      {"equal_bool", [] { equal(of(DType::boolean, 2), of(DType::boolean, 3)); }, {"[equal]", "bool"}},
      {"where_condition", [] { where(floats(2), floats(2), floats(2)); }, {"[where]", "bool", "f32", "[2]"}},
      {"where_shapes", [] { where(of(DType::boolean, 5), floats(2), floats(2)); }, {"[where]", "[5]", "[2]"}},
      {"sum_axis", [] { sum(floats(2, 3), {2}); }, {"[sum]", "axis 2", "[2, 3]"}},
      {"sum_axis_twice",
       [] {
         sum(floats(2, 3), {1, -1});
       },
       {"[sum]", "axis 1", "[2, 3]", "twice"}},
      {"sum_integer", [] { sum(of(DType::i32, 2)); }, {"[sum]", "i32"}},
      {"mean_empty", [] { mean(floats(0, 3)); }, {"[mean]", "[0, 3]"}},
      {"max_empty", [] { max(floats(2, 0), 1); }, {"[max]", "axis 1", "[2, 0]"}},
      {"max_axis", [] { max(floats(2), -2); }, {"[max]", "axis -2", "[2]"}},
      {"argmax_empty", [] { argmax(floats(2, 0)); }, {"[argmax]", "[2, 0]"}},
      {"sum_to_shape", [] { sum_to(floats(2, 3), {2}); }, {"[sum_to]", "[2]", "[2, 3]"}},
      {"sum_to_larger",
       [] {
         sum_to(floats(3), {2, 3});
       },
       {"[sum_to]", "[2, 3]", "[3]"}},
      {"softmax_scalar", [] { softmax(floats()); }, {"[softmax]", "[]"}},
      {"causal_softmax_square", [] { causal_softmax(floats(2, 3, 4)); }, {"[causal_softmax]", "T, T", "[2, 3, 4]"}},
      {"layer_norm_weight",
       [] { layer_norm(floats(2, 3), floats(2), floats(3)); },
       {"[layer_norm]", "weight", "[2, 3]", "[2]"}},
      {"layer_norm_bias",
       [] { layer_norm(floats(2, 3), floats(3), floats(1, 3)); },
       {"[layer_norm]", "bias", "[2, 3]", "[1, 3]"}},
      {"rms_norm_types",
       [] { rms_norm(floats(2, 3), of(DType::f64, 3)); },
       {"[rms_norm]", "f32", "[2, 3]", "f64", "[3]"}},
      {"matmul_inner", [] { matmul(floats(8, 64), floats(32, 8)); }, {"[matmul]", "inner", "[8, 64]", "[32, 8]"}},
      {"matmul_transpose_hint",
       [] { matmul(floats(8, 64), floats(32, 64)); },
       {"[matmul]", "[8, 64]", "[32, 64]", "transpose"}},
      {"matmul_vector", [] { matmul(floats(3), floats(3, 2)); }, {"[matmul]", "[3]", "[3, 2]"}},
      {"matmul_batches", [] { matmul(floats(2, 4, 5), floats(3, 5, 4)); }, {"[matmul]", "[2]", "[3]"}},
      {"matmul_types", [] { matmul(floats(2, 2), of(DType::f64, 2, 2)); }, {"[matmul]", "f32", "f64"}},
      {"linear_inputs", [] { linear(floats(5, 3), floats(2, 4)); }, {"[linear]", "[5, 3]", "[2, 4]"}},
      {"linear_bias", [] { linear(floats(5, 3), floats(2, 3), floats(3)); }, {"[linear]", "bias", "[2]", "[3]"}},
      {"linear_weight", [] { linear(floats(5, 3), floats(3)); }, {"[linear]", "weight", "[3]"}},
      {"embedding_id",
       [] { embedding(floats(5, 2), ids(0, 4, 5)); },
       {"[embedding]", "id 5", "element 2", "0..4", "[5, 2]"}},
      {"embedding_negative", [] { embedding(floats(5, 2), ids(-1)); }, {"[embedding]", "id -1", "0..4"}},
      {"embedding_type", [] { embedding(floats(5, 2), of(DType::i64, 3)); }, {"[embedding]", "i32", "i64"}},
      {"embedding_table", [] { embedding(floats(5), ids(0)); }, {"[embedding]", "[5]"}},
      {"read_distance_rows",
       [] { read_distance(floats(2, 3, 4), 5, false); },
       {"[read_distance]", "[2, 3, 4]", "5 rows"}},
      {"read_distance_empty", [] { read_distance(floats(3, 0), 3, true); }, {"[read_distance]", "[3, 0]"}},
      {"interpolate_leading", [] { interpolate(floats(2, 5), floats(3, 4)); }, {"[interpolate]", "[2, 5]", "[3, 4]"}},
      {"interpolate_causal_square",
       [] { interpolate_causal(floats(3, 5), floats(3, 4)); },
       {"[interpolate_causal]", "[3, 4]"}},
      {"interpolate_empty", [] { interpolate(floats(2, 0), floats(2, 4)); }, {"[interpolate]", "[2, 0]"}},
      {"causal_suffix_sum_square", [] { causal_suffix_sum(floats(3, 4)); }, {"[causal_suffix_sum]", "[3, 4]"}},
      {"cumsum_scalar", [] { cumsum(floats()); }, {"[cumsum]", "[]"}},
      {"solve_unit_lower_shape",
       [] { solve_unit_lower(floats(2, 3, 3), floats(2, 4, 5)); },
       {"[solve_unit_lower]", "[2, 4, 5]", "[2, 3, 3]"}},
      {"lstm_gates", [] { lstm(floats(2, 3, 6), floats(4, 1), floats(2, 1), floats(2, 1)); }, {"[lstm]", "[2, 3, 6]"}},
      {"lstm_weight",
       [] { lstm(floats(2, 3, 8), floats(8, 3), floats(2, 2), floats(2, 2)); },
       {"[lstm]", "[8, 2]", "[8, 3]"}},
      {"lstm_start",
       [] { lstm(floats(2, 3, 8), floats(8, 2), floats(2, 2), floats(3, 2)); },
       {"[lstm]", "[2, 2]", "[3, 2]"}},
      {"rotate_pairs_length",
       [] { rotate_pairs(floats(3, 4), floats(2, 2), floats(2, 2), false); },
       {"[rotate_pairs]", "[2, 2]", "[3, 4]"}},
      {"rotate_pairs_width",
       [] { rotate_pairs(floats(3, 4), floats(3, 3), floats(3, 3), false); },
       {"[rotate_pairs]", "[3, 3]", "[3, 4]"}},
      {"rotate_pairs_sine",
       [] { rotate_pairs(floats(3, 4), floats(3, 2), floats(3, 1), false); },
       {"[rotate_pairs]", "[3, 2]", "[3, 1]"}},
      {"dropout_rate", [] { dropout(floats(2), 1, {}); }, {"[dropout]", "rate", "1"}},
      {"dropout_nan", [] { dropout(floats(2), std::numeric_limits<double>::quiet_NaN(), {}); }, {"[dropout]", "nan"}},
      {"cross_entropy_target",
       [] { cross_entropy(floats(2, 5), ids(1, 5), both()); },
       {"[cross_entropy]", "target 5", "element 1", "0..4"}},
      {"cross_entropy_mask",
       [] { cross_entropy(floats(2, 5), ids(1, 1), of(DType::boolean, 2)); },
       {"[cross_entropy]", "mask", "[2]"}},
      {"cross_entropy_shapes",
       [] { cross_entropy(floats(2, 5), ids(1), of(DType::boolean, 2)); },
       {"[cross_entropy]", "[2, 5]", "[1]", "[2]"}},
      {"linear_cross_entropy_head",
       [] { linear_cross_entropy(floats(2, 5), floats(7, 4), ids(1, 1), both(), floats(1)); },
       {"[linear_cross_entropy]", "[2, 5]", "[V, 5]", "[7, 4]"}},
      {"linear_cross_entropy_targets",
       [] { linear_cross_entropy(floats(2, 5), floats(7, 5), ids(1), both(), floats(1)); },
       {"[linear_cross_entropy]", "rows [2, 5]", "[1]", "[2]"}},
      {"linear_cross_entropy_weight",
       [] { linear_cross_entropy(floats(2, 5), floats(7, 5), ids(1, 1), both(), floats(2)); },
       {"[linear_cross_entropy]", "weight", "one number", "[2]"}},
      {"cross_entropy_type",
       [] { cross_entropy(floats(2, 5), of(DType::i64, 2), of(DType::boolean, 2)); },
       {"[cross_entropy]", "i32", "i64"}},
      {"reshape_count", [] { reshape(floats(2, 3), {4}); }, {"[reshape]", "[2, 3]", "[4]"}},
      {"transpose_axis", [] { transpose(floats(2, 3), 0, 2); }, {"[transpose]", "axis 2", "[2, 3]"}},
      {"slice_range", [] { slice(floats(2, 3), 1, 1, 4); }, {"[slice]", "[1, 4)", "axis 1", "[2, 3]"}},
      {"slice_backwards", [] { slice(floats(2, 3), 1, 2, 1); }, {"[slice]", "[2, 1)", "[2, 3]"}},
      {"select_index", [] { select(floats(2, 3), 1, 3); }, {"[select]", "3", "axis 1", "[2, 3]"}},
      {"broadcast_to_shape",
       [] {
         broadcast_to(floats(2, 3), {3, 3});
       },
       {"[broadcast_to]", "[2, 3]", "[3, 3]"}},
      {"unsqueeze_axis", [] { unsqueeze(floats(2), 3); }, {"[unsqueeze]", "axis 3", "[2]"}},
      {"unsqueeze_rank", [] { unsqueeze(floats(1, 1, 1, 1, 1, 1, 1, 1), 0); }, {"[shape]", "rank over 8"}},
      {"concat_nothing", [] { concat({}, 0); }, {"[concat]", "at least one"}},
      {"concat_shapes",
       [] {
         concat({floats(2, 3), floats(2, 4)}, 0);
       },
       {"[concat]", "[2, 3]", "[2, 4]"}},
      {"concat_ranks",
       [] {
         concat({floats(2, 3), floats(2)}, 0);
       },
       {"[concat]", "[2, 3]", "[2]"}},
      {"concat_types",
       [] {
         concat({floats(2), of(DType::f64, 2)}, 0);
       },
       {"[concat]", "f32", "f64"}},
      {"gradcheck_type",
       [] { gradcheck([](const auto& x) { return x[0]; }, {floats(2)}); },
       {"[gradcheck]", "input 0", "f32", "f64"}},
  };
  return all;
}

class Mistake : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Mistake, IsNamed) {
  const WrongCall& wrong = wrong_calls()[GetParam()];
  const std::string message = testing::error_of(wrong.call);
  EXPECT_EQ(message.rfind(wrong.parts[0], 0), 0u) << message;
  for (const std::string& part : wrong.parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

INSTANTIATE_TEST_SUITE_P(All, Mistake, ::testing::Range<std::size_t>(0, wrong_calls().size()),
                         [](const auto& test) { return wrong_calls()[test.param].name; });

}  // namespace tally::errors_test
