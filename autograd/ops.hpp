// The differentiable operations. Each checks its arguments (Error("[name] ...") with both shapes), allocates, calls the
// kernel and records its derivative; the files are in autograd/ops/ with the same stems as core/cpu.
// Floating tensors are f32 or f64 and never mixed in one call.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/op_kinds.hpp"
#include "core/random.hpp"
#include "core/rounded.hpp"
#include "core/tensor.hpp"

namespace tally {

// --- elementwise; shapes broadcast by the NumPy rule ---
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
// The same of two activations, which are kept for backward as products read them (core/precision.md); writes over an a
// that is moved to it, where nothing else holds its memory.
Tensor multiply_activations(Tensor a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  // where equal the gradient goes to a
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& x, double c);
Tensor multiply(const Tensor& x, double c);
Tensor power(const Tensor& x, double exponent);
Tensor negate(const Tensor& x);
Tensor abs(const Tensor& x);  // gradient 0 at 0
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
// x for x > 0, else slope x, slope >= 0; gradient `slope` at 0
Tensor leaky_relu(const Tensor& x, double slope);
Tensor relu(const Tensor& x);       // gradient 0 at 0
Tensor gelu(const Tensor& x);       // x Phi(x), by erf
Tensor gelu_tanh(const Tensor& x);  // the same with Phi by tanh
Tensor silu(const Tensor& x);
// These write over x where nothing else holds its memory.
Tensor relu(Tensor&& x);
Tensor gelu(Tensor&& x);
Tensor gelu_tanh(Tensor&& x);
Tensor silu(Tensor&& x);
Tensor softplus(const Tensor& x);
Tensor unary(UnaryOp op, Tensor x, double parameter = 0);
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
// bool results, no derivative (an input that takes gradients is fine: the result is constant almost everywhere)
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);
// condition ? a : b
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator+(const Tensor& x, double c) { return add(x, c); }
inline Tensor operator-(const Tensor& x, double c) { return add(x, -c); }
inline Tensor operator*(const Tensor& x, double c) { return multiply(x, c); }
inline Tensor operator*(double c, const Tensor& x) { return multiply(x, c); }
inline Tensor operator/(const Tensor& x, double c) { return multiply(x, 1.0 / c); }
inline Tensor operator-(const Tensor& x) { return negate(x); }

// --- reductions ---
// Over the given axes (all if none are given). keep: the reduced axes stay with size 1.
Tensor sum(const Tensor& x, const std::vector<int>& axes = {}, bool keep = false);
Tensor mean(const Tensor& x, const std::vector<int>& axes = {}, bool keep = false);
// Largest element along one axis; the gradient goes to the first element that holds it. Throws for an empty axis.
Tensor max(const Tensor& x, int axis, bool keep = false);
// i64 index of the largest element of the last axis; no derivative.
Tensor argmax(const Tensor& x);
// Sums x down to a shape that broadcasts to x's.
Tensor sum_to(const Tensor& x, const Shape& shape);

// --- softmax over the last axis ---
Tensor softmax(const Tensor& x);
// x [..., T, T]: row i over j <= i; 0 above the diagonal.
Tensor causal_softmax(const Tensor& x);

// x of f32 or f64 as it is, and what was written for products (ReadBy) in f32, to be computed with. The gradient stays
// f32.
Tensor unrounded(const Tensor& x);

// --- norms over the last axis; weight, bias [N] ---
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                  ReadBy readers = ReadBy::anyone);
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6, ReadBy readers = ReadBy::anyone);
// With a weight of ones; keeps the result and not x.
Tensor rms_norm(const Tensor& x, double eps = 1e-6);

// --- products ---
// alpha * a[..., M, K] b[..., K, N], leading axes broadcast. Transposed views are read in place.
Tensor matmul(const Tensor& a, const Tensor& b, double alpha = 1.0);
// x [..., in] times weight [out, in] transposed, plus bias [out], plus onto [..., out] (either may be undefined). What
// is moved here is let go as early as can be: x before its product, where backward keeps it as products read it
// (core/precision.md); onto becomes the result where nothing else holds it. An x of bf16 is one that was written
// for products (ReadBy), as the result is where `readers` says so and nothing is added.
Tensor linear(Tensor x, const Tensor& weight, const Tensor& bias = {}, Tensor onto = {},
              ReadBy readers = ReadBy::anyone);

// --- triangular systems ---
// Y of (I + L) Y = given, L the part of l [..., C, C] strictly below its diagonal, which alone is read; given and Y
// [..., C, N], of the same leading axes. Throws Error naming the shapes.
Tensor solve_unit_lower(const Tensor& l, const Tensor& given);

// --- index ---
// ids i32 of any shape, table [V, D] -> [..., D]. On the CPU throws naming the first id outside 0..V-1; elsewhere,
// where looking at ids would mean waiting for them, the row of such an id is NaN.
Tensor embedding(const Tensor& table, const Tensor& ids);
// Throws Error naming the first of the ids, i32, that is outside 0..V-1 of a table [V, D]; waits for ids on a device.
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
// y[..., j] = decay[..., j] y[..., j-1] + x[..., j]: a sum that forgets, carried in double. x [..., N]; decay
// broadcasts to it, from 0 to 1 as a rule: of a head and token for all channels, [B, H, 1, T] beside x [B, H, d, T].
Tensor decayed_cumsum(const Tensor& x, const Tensor& decay);
// x [..., T, T]: y[i, j] = sum_{k=j..i} x[i, k]; 0 above the diagonal. CoPE's positions from gates.
Tensor causal_suffix_sum(const Tensor& x);

// --- lstm ---
// The recurrence of an LSTM over T steps. x [B, T, 4D], the products of the inputs with their weight; weight [4D, D] of
// the h before; hidden, cell [B, D] before the first step. Gates in the order i, f, g, o.
struct LstmSteps {
  Tensor hidden;  // h of each step, [B, T, D]
  Tensor cells;   // c of each step, [B, T, D]; no gradient passes through it
};
LstmSteps lstm(const Tensor& x, const Tensor& weight, const Tensor& hidden, const Tensor& cell);

// --- rotation of pairs (RoPE): x [..., T, d], cosine and sine [T, r/2], r <= d even ---
// Of an x that was written for products (ReadBy) the result is, too.
Tensor rotate_pairs(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool interleaved);
// The same by angles [..., T, r/2] that take gradients; their leading axes broadcast to those of x, their type may be
// f64 where they grow with the length. Keeps the result, sines and cosines.
Tensor turn_pairs(const Tensor& x, const Tensor& angle, bool interleaved);

// --- random ---
// Zero with probability `rate` and scaled by 1/(1-rate) otherwise; 0 <= rate < 1, the identity for 0.
Tensor dropout(const Tensor& x, double rate, RandomStream stream);

// --- loss ---
// Mean over the positions where mask is set of -log softmax(logits)[target]. logits [..., V], targets i32 and mask bool
// of the leading shape. Throws when a target that counts is out of range or when nothing counts.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask);
// The sum over these positions times `weight`, one number of the logits' type that takes no gradient. Reads nothing
// back from the device, so the caller has to know that the targets are in range (counted_targets).
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask, const Tensor& weight);
// What a loss over tokens leaves beside itself; neither takes a gradient.
struct TokenLoss {
  Tensor loss;  // as cross_entropy with a weight
  Tensor rows;  // of each position by itself, unweighted; 0 where the mask is not set
  Tensor best;  // where its largest logit stands, i64
};
TokenLoss token_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& mask, const Tensor& weight);
// The same of logits = x head^T, x [..., D] and head [V, D], of which only so many rows are there at a time (0: as many
// as suit V): for vocabularies whose logits are larger than all else.
TokenLoss linear_cross_entropy(const Tensor& x, const Tensor& head, const Tensor& targets, const Tensor& mask,
                               const Tensor& weight, std::int64_t strip_rows = 0);
// Number of positions where mask is set. Throws when a target of theirs is outside 0..classes-1, or there are none.
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
