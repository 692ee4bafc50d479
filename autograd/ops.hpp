// The differentiable operations. Each checks its arguments (Error("[name] ...") with both shapes), allocates, calls the
// kernel and records its derivative; the files are in autograd/ops/ with the same stems as core/cpu.
// Floating tensors are f32 or f64 and never mixed in one call.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/autocast.hpp"
#include "core/device/op_kinds.hpp"
#include "core/math/random.hpp"
#include "core/tensor.hpp"

namespace tally {

// --- elementwise; shapes broadcast by the NumPy rule ---
Tensor unary(UnaryOp op, Tensor x, double parameter = 0);  // overwrites x if no one else shares its memory
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
Tensor compare(CompareOp op, const Tensor& a, const Tensor& b);

inline Tensor add(const Tensor& a, const Tensor& b) { return binary(BinaryOp::add, a, b); }
inline Tensor subtract(const Tensor& a, const Tensor& b) { return binary(BinaryOp::subtract, a, b); }
inline Tensor multiply(const Tensor& a, const Tensor& b) { return binary(BinaryOp::multiply, a, b); }
// The same for two activations of one shape (save_activation). If a is moved in and no one shares its memory, the
// result overwrites a.
Tensor multiply_activations(Tensor a, const Tensor& b);
inline Tensor divide(const Tensor& a, const Tensor& b) { return binary(BinaryOp::divide, a, b); }
// If equal, the gradient goes to a.
inline Tensor maximum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::maximum, a, b); }
inline Tensor minimum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::minimum, a, b); }
inline Tensor add(const Tensor& x, double c) { return unary(UnaryOp::add_scalar, x, c); }
inline Tensor multiply(const Tensor& x, double c) { return unary(UnaryOp::multiply_scalar, x, c); }
inline Tensor power(const Tensor& x, double exponent) { return unary(UnaryOp::power, x, exponent); }
inline Tensor negate(const Tensor& x) { return unary(UnaryOp::negate, x); }
inline Tensor abs(const Tensor& x) { return unary(UnaryOp::absolute, x); }  // gradient 0 at 0
inline Tensor square(const Tensor& x) { return unary(UnaryOp::square, x); }
inline Tensor sqrt(const Tensor& x) { return unary(UnaryOp::sqrt, x); }
inline Tensor reciprocal(const Tensor& x) { return unary(UnaryOp::reciprocal, x); }
inline Tensor exp(const Tensor& x) { return unary(UnaryOp::exp, x); }
inline Tensor log(const Tensor& x) { return unary(UnaryOp::log, x); }
inline Tensor sin(const Tensor& x) { return unary(UnaryOp::sin, x); }
inline Tensor cos(const Tensor& x) { return unary(UnaryOp::cos, x); }
inline Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::sigmoid, x); }
inline Tensor tanh(const Tensor& x) { return unary(UnaryOp::tanh, x); }
inline Tensor softplus(const Tensor& x) { return unary(UnaryOp::softplus, x); }
// x for x > 0, else slope x, slope >= 0; gradient `slope` at 0
Tensor leaky_relu(const Tensor& x, double slope);
// If x is moved in and no one shares its memory, the result overwrites it.
inline Tensor relu(Tensor x) { return unary(UnaryOp::relu, std::move(x)); }            // gradient 0 at 0
inline Tensor gelu(Tensor x) { return unary(UnaryOp::gelu, std::move(x)); }            // x Phi(x), by erf
inline Tensor gelu_tanh(Tensor x) { return unary(UnaryOp::gelu_tanh, std::move(x)); }  // the same with Phi by tanh
inline Tensor silu(Tensor x) { return unary(UnaryOp::silu, std::move(x)); }
// bool results, no derivative (an input that takes gradients is fine: the result is constant almost everywhere)
inline Tensor less(const Tensor& a, const Tensor& b) { return compare(CompareOp::less, a, b); }
inline Tensor less_equal(const Tensor& a, const Tensor& b) { return compare(CompareOp::less_equal, a, b); }
inline Tensor equal(const Tensor& a, const Tensor& b) { return compare(CompareOp::equal, a, b); }
// condition ? a : b
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator+(const Tensor& x, double c) { return add(x, c); }
inline Tensor operator-(const Tensor& x, double c) { return add(x, -c); }
inline Tensor operator*(const Tensor& x, double c) { return multiply(x, c); }
inline Tensor operator+(double c, const Tensor& x) { return add(x, c); }
inline Tensor operator-(double c, const Tensor& x) { return add(negate(x), c); }
inline Tensor operator*(double c, const Tensor& x) { return multiply(x, c); }
inline Tensor operator/(const Tensor& x, double c) { return multiply(x, 1.0 / c); }
inline Tensor operator-(const Tensor& x) { return negate(x); }

// --- reductions ---
// Over the given axes (all if none are given). keep: the reduced axes stay with size 1.
Tensor sum(const Tensor& x, const std::vector<int>& axes = {}, bool keep = false);
Tensor mean(const Tensor& x, const std::vector<int>& axes = {}, bool keep = false);
// Largest element along one axis; its gradient goes to the first of equal elements. Throws for an empty axis.
Tensor max(const Tensor& x, int axis, bool keep = false);
// i64 index of the largest element of the last axis; no derivative.
Tensor argmax(const Tensor& x);
// Sums x down to a shape that broadcasts to x's.
Tensor sum_to(const Tensor& x, const Shape& shape);

// --- softmax over the last axis ---
Tensor softmax(const Tensor& x);
// x [..., T, T]: row i over j <= i; 0 above the diagonal.
Tensor causal_softmax(const Tensor& x);

// --- norms over the last axis; weight, bias [N] ---
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                  OutputPrecision precision = OutputPrecision::full);
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6,
                OutputPrecision precision = OutputPrecision::full);
// With a weight of ones; saves the result instead of x.
Tensor rms_norm(const Tensor& x, double eps = 1e-6);

// --- matmul ---
// alpha * a[..., M, K] b[..., K, N], leading axes broadcast. Transposed views are read in place. a may be a
// matmul_input.
Tensor matmul(const Tensor& a, const Tensor& b, double alpha = 1.0);
// x [..., in] times weight [out, in] transposed, plus bias [out], plus residual [..., out] (either may be undefined).
// Arguments that are moved in are freed as early as possible: x before the matmul, if backward saves it in bf16. The
// residual becomes the result if no one shares its memory. x may be a matmul_input; the result is one if nothing is
// added.
Tensor linear(Tensor x, const Tensor& weight, const Tensor& bias = {}, Tensor residual = {},
              OutputPrecision precision = OutputPrecision::full);
// weight [out, in], bias [out] or undefined.
struct LinearWeights {
  const Tensor &weight, &bias;
};
// Several linear layers of x [B, T, in], each with `heads` heads, by one matmul on a GPU: [B, heads, T, out / heads]
// for each layer. The parameters of the layers are parts of all.weight [layers out, in] and all.bias [layers out].
std::vector<Tensor> linear_heads(const Tensor& x, const LinearWeights& all, std::span<const LinearWeights> layers,
                                 std::int64_t heads, OutputPrecision precision = OutputPrecision::full);
// down(op(up(x))) (+ residual), op one of relu, gelu, gelu_tanh and silu; shapes, errors and residual as of linear().
// The results of up and op, and the gradient of up's result, are matmul_inputs. The CPU's matmuls write all three in
// their epilogue.
Tensor mlp(UnaryOp op, Tensor x, const LinearWeights& up, const LinearWeights& down, Tensor residual = {});

// --- triangular systems ---
// Y of (I + L) Y = given. L is the part of l [..., C, C] strictly below its diagonal; the rest is not read. given and Y
// [..., C, N] have the same leading axes. Throws Error naming the shapes.
Tensor solve_unit_lower(const Tensor& l, const Tensor& given);

// --- index ---
// ids i32 of any shape, table [V, D] -> [..., D]. On the CPU it throws an Error naming the first id outside 0..V-1. On
// other devices checking would mean waiting, and the row of such an id is NaN.
Tensor embedding(const Tensor& table, const Tensor& ids);
// Throws Error naming the first of the ids, i32, that is outside 0..V-1 of a table [V, D]; waits for the device.
void check_ids(std::string_view name, const Tensor& ids, const Tensor& table);
// y[..., i, j] = x[..., i, i-j], x [..., T or 1, W] -> [..., T, T], 0 above the diagonal. Distances >= W: row W-1 if
// cap, else 0. `length` is T.
Tensor read_distance(const Tensor& x, std::int64_t length, bool cap);
// CoPE's interpolation: table [..., T, P+1] (z), position [..., T, T] -> [..., T, T] below the diagonal, 0 above:
// c = min(p, P), f = floor(c), (1-(c-f)) z[f] + (c-f) z[min(f+1, P)].  arXiv 2405.18719, eq. 5 with errata.
Tensor interpolate_causal(const Tensor& table, const Tensor& position);
// The same without the triangle: position [..., N], table [..., P+1].
Tensor interpolate(const Tensor& table, const Tensor& position);

// --- scan over the last axis ---
Tensor cumsum(const Tensor& x, bool reverse = false);
// x [..., T, T]: y[i, j] = sum_{k=j..i} x[i, k]; 0 above the diagonal. CoPE's positions, computed from gates.
Tensor causal_suffix_sum(const Tensor& x);

// --- lstm ---
// The recurrence of an LSTM over T steps. x [B, T, 4D]: the inputs times their weight; weight [4D, D] of the previous
// h; hidden, cell [B, D] before the first step. Gates in the order i, f, g, o.
struct LstmSteps {
  Tensor hidden;  // h of each step, [B, T, D]
  Tensor cells;   // c of each step, [B, T, D]; no gradient passes through it
};
LstmSteps lstm(const Tensor& x, const Tensor& weight, const Tensor& hidden, const Tensor& cell);

// --- rotation of pairs (RoPE): x [..., T, d], cosine and sine [T, r/2], r <= d even ---
// If x is bf16 (OutputPrecision::matmul_input), so is the result.
Tensor rotate_pairs(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool interleaved);
// The same by angles [..., T, r/2] that take gradients. Their leading axes broadcast to x's; their type may be
// f64 if they grow with the length. Saves the result, sines and cosines.
Tensor turn_pairs(const Tensor& x, const Tensor& angle, bool interleaved);

// --- random ---
// Zero with probability `rate` and scaled by 1/(1-rate) otherwise; 0 <= rate < 1, the identity for 0.
Tensor dropout(const Tensor& x, double rate, RandomStream stream);

// --- loss ---
// Mean of (prediction - target)²; both have one shape. Throws otherwise.
Tensor mse(const Tensor& prediction, const Tensor& target);
// Mean over the positions where mask is set of -log softmax(logits)[target]. logits [..., V], targets i32 and mask bool
// of the leading shape. Throws if a target under the mask is out of range, or if the mask is empty.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask);
// The same over all positions.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets);
// The sum over these positions times `weight`, one number of the logits' type that takes no gradient. Reads nothing
// back from the device, so the caller must ensure that the targets are in range (counted_targets).
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask, const Tensor& weight);
// The loss over tokens and two by-products, which take no gradient.
struct TokenLoss {
  Tensor loss;  // as cross_entropy with a weight
  Tensor rows;  // loss of each position, unweighted; 0 outside the mask
  Tensor best;  // index of its largest logit, i64
};
TokenLoss token_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask, const Tensor& weight);
// The same for logits = x head^T, x [..., D] and head [V, D]. At most strip_rows rows of the logits are in memory at a
// time (0: a number that suits V), for vocabularies whose logits would be the largest tensor.
TokenLoss linear_cross_entropy(const Tensor& x, const Tensor& head, const Tensor& targets, const Tensor& mask,
                               const Tensor& weight, std::int64_t strip_rows = 0);
// Number of positions in the mask. Throws if a target there is outside 0..classes-1, or if the mask is empty.
std::int64_t counted_targets(const Tensor& targets, const Tensor& mask, std::int64_t classes);

// --- shape; views wherever possible ---
Tensor reshape(const Tensor& x, const Shape& shape);  // copies if x is not dense
Tensor transpose(const Tensor& x, int a, int b);
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end);
Tensor select(const Tensor& x, int axis, std::int64_t index);
Tensor broadcast_to(const Tensor& x, const Shape& shape);
Tensor unsqueeze(const Tensor& x, int axis);
Tensor concat(const std::vector<Tensor>& parts, int axis);
// A dense tensor of the same elements.
Tensor contiguous(const Tensor& x);
// f32 <-> f64, differentiable; other conversions have no derivative.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace tally
