#include "autograd/score.hpp"

#include <algorithm>
#include <utility>

#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "core/error.hpp"

namespace tally {

bool is_compiled(const PairPolicy& policy, Device device) {
  switch (type_of_kernels(device)) {
    case DeviceType::cuda: return policy.cuda != nullptr;
    case DeviceType::cuda_host: return policy.cuda_host != nullptr;
    default: return policy.loops != nullptr;
  }
}

void Score::set_scan(Pair value) {
  check(!scan.has_value(), "encoding",
        "two parts of the sum each bring a scan (a running sum along the keys, or a policy), but a score has one: each "
        "defines what becomes of a pair; keep one of them (biases and rotations may join it)");
  scan = std::move(value);
}

void Score::set_normaliser(Normaliser value) {
  check(normaliser.is_softmax(), "encoding",
        "two parts of the sum each take the place of the softmax: keep one of them (biases and rotations may join it)");
  normaliser = std::move(value);
}

Tensor products_of_rows(const Tensor& query, const Tensor& key, double scale) {
  check_products_of_rows("attention", query, key);
  const Tensor wide = unrounded(query);
  const std::int64_t sequences = key.size(0), heads = key.size(1), rows = key.size(2), width = key.size(3);
  Tensor by_head = key;
  if (sequences == 1 && heads == 1) {
    by_head = reshape(key, {rows, width});  // one product
  } else if (heads > 1 && heads != query.size(1)) {
    const std::int64_t each = query.size(1) / heads;
    const Tensor one_more = reshape(key, {sequences, heads, 1, rows, width});
    by_head =
        reshape(broadcast_to(one_more, {sequences, heads, each, rows, width}), {sequences, query.size(1), rows, width});
  }
  return matmul(wide, transpose(by_head, -1, -2), scale);
}

RowToeplitz ToeplitzProduct::written_out(double scale) const { return {products_of_rows(query, key, scale), cap}; }

void Score::keep_gates(const Tensor& q, const Tensor& k) {
  if (scan && scan->policy->needs.other && !scan->other.query.defined()) scan->other = {q, k};
}

bool Score::takes_score_alone() const {
  const Pair* const pair = scan ? &*scan : nullptr;
  return pair != nullptr && !pair->policy->needs.biased && !pair->policy->needs.adds;
}

bool Score::tiled_on(Device device) const {
  const Pair* const pair = scan ? &*scan : nullptr;
  return pair == nullptr || is_compiled(*pair->policy, device);
}

void Score::check_policy() const {
  const Pair* const pair = scan ? &*scan : nullptr;
  check(pair == nullptr || !pair->policy->needs.spends || normaliser.kind == Normaliser::Kind::exp, "attention",
        "logits of a policy that spends are for the normaliser exp");
  check(pair == nullptr || pair->policy->needs.adds_entry || !row_factor.defined(), "encoding", "the policy '",
        pair != nullptr ? pair->policy->name : "",
        "' makes logits of pairs by itself, and a factor of whole logits cannot be joined to it; keep one of them");
  const bool product =
      std::any_of(biases.begin(), biases.end(), [](const Bias& bias) { return std::holds_alternative<Product>(bias); });
  if (!(product || moved.has_value()) || !takes_score_alone()) return;
  check(false, "encoding", "the policy '", pair->policy->name, "' reads the score of q and k alone, ",
        product ? "of which a product is a part" : "in whose place another product stands", "; keep one of them");
}

namespace {

// Each shape with the numbers of row i times factor_i; factor [B or 1, H, T, 1].

Bias times_rows(const Toeplitz& bias, const Tensor& factor, const AttentionOperands& in) {
  const std::int64_t distances = std::min(bias.bias.size(1), in.k.size(2));
  const Tensor by_row = unsqueeze(unsqueeze(slice(bias.bias, 1, 0, distances), 1), 0) * factor;
  return RowToeplitz{broadcast_to(by_row, {in.q.size(0), in.q.size(1), in.q.size(2), distances})};
}

// In double until all is there, as in tiles.
Bias times_rows(const RowColumn& bias, const Tensor& factor, const AttentionOperands& in) {
  const Tensor exact = cast(factor, DType::f64);
  if (!bias.column.defined()) return RowColumn{bias.row * select(exact, 3, 0), {}};
  const Tensor column = unsqueeze(bias.column, 2);
  return Dense{cast((bias.row.defined() ? unsqueeze(bias.row, 3) + column : column) * exact, in.q.dtype())};
}

Bias times_rows(const RowToeplitz& bias, const Tensor& factor, const AttentionOperands&) {
  return RowToeplitz{bias.z * factor, bias.cap};
}
Bias times_rows(const ToeplitzProduct& bias, const Tensor& factor, const AttentionOperands&) {
  return ToeplitzProduct{bias.query * factor, bias.key, bias.cap};
}
Bias times_rows(const Product& bias, const Tensor& factor, const AttentionOperands&) {
  return Product{bias.query * factor, bias.key};
}
Bias times_rows(const Dense& bias, const Tensor& factor, const AttentionOperands&) {
  return Dense{bias.bias * factor, bias.of_score};
}

}  // namespace

void multiply_rows(AttentionOperands& in, Score& score) {
  if (!score.row_factor.defined()) return;
  score.check_policy();
  const Tensor factor = unsqueeze(score.row_factor, 3);
  score.keep_gates(in.q, in.k);
  // One that goes with a factor adds the entries of its table.
  if (score.scan) score.scan->table = score.scan->table * factor;
  for (Bias& bias : score.biases) {
    bias = std::visit([&](const auto& shape) { return times_rows(shape, factor, in); }, bias);
  }
  if (score.moved) {
    score.moved->queries = score.moved->queries * factor;
    score.moved->own = score.moved->own * factor;
  }
  in.q = in.q * factor;
  score.row_factor = {};
}

}  // namespace tally
