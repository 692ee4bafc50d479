#include "autograd/ops/attention_call.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "autograd/ops/check.hpp"
#include "core/attention/score_mod_traits.hpp"

namespace tally::attention_call {
namespace {

// Whether x, given as a matmul input, may stay bf16.
bool may_be_operand(const Tensor& x) { return is_matmul_input(x) && is_cpu(x.device()); }

// The sizes that letters of OperandRule::shape stand for.
class Sizes {
 public:
  static constexpr std::int64_t unknown = -1;
  Sizes() { sizes_.fill(unknown); }
  std::int64_t& operator[](char letter) { return sizes_.at(static_cast<std::size_t>(letter)); }

 private:
  std::array<std::int64_t, 128> sizes_;
};

std::string axes_text(std::string_view shape) {
  std::string text;
  for (const char letter : shape) text += concat(text.empty() ? "[" : ", ", letter);
  return text + "]";
}

// Checks the operands that are given. A letter without a size takes it from the first operand that has the letter.
void check_operands(const Problem& problem, Sizes& sizes) {
  const auto check_operand = [&](const OperandRule& rule, const Tensor& x) {
    if (!x.defined()) return;
    check(x.rank() == static_cast<int>(rule.shape.size()), operation_name, rule.name, " must be ",
          axes_text(rule.shape), ", got ", x.shape());
    Shape expected;
    for (const char letter : rule.shape) {
      const std::int64_t own = x.size(expected.rank), least = sizes['K'] == 0 ? 0 : 1;
      std::int64_t& size = sizes[letter];
      if (letter != '*' && size == Sizes::unknown) size = own;
      expected.append(letter == '*' ? std::max(own, least) : size);
    }
    using Type = OperandRule::Type;
    const bool may_be_bf16 = rule.type == Type::packed || rule.type == Type::matmul;
    const DType dtype = may_be_bf16 && may_be_operand(x) ? DType::bf16
                        : rule.type == Type::f64         ? DType::f64
                                                         : compute_type(problem.q.dtype());
    check(x.shape() == expected && x.dtype() == dtype, operation_name, rule.name, " must be ", dtype, " ", expected,
          ", got ", x.dtype(), " ", x.shape());
    check_same_device(operation_name, problem.q, x);
  };
  for_each_operand(check_operand, problem);
}

// x, or no tensor if it is not needed.
Tensor needed_operand(bool needed, const Tensor& x) {
  if (!needed) return {};
  check_defined(operation_name, x);
  return x;
}

// The queries and keys of `moved` are already the first channels of q and k, before the channels that do not move.
MoveOperands<Tensor> moves_of(const MovedProduct& moved, Sizes& sizes) {
  const std::int64_t keys = sizes['K'];
  check(sizes['T'] == keys, operation_name, "queries that move are those of all keys, but there are ", sizes['T'],
        " for ", keys, " keys");
  sizes['C'] = std::min(keys, moved_block);
  sizes['N'] = keys == 0 ? 0 : (keys - 1) / sizes['C'] + 1;
  sizes['m'] = moved.queries.size(3);
  const bool by_factor = moved.factor.defined();
  return {needed_operand(true, moved.own), needed_operand(!by_factor, moved.read),
          needed_operand(!by_factor, moved.taken), moved.factor};
}

ScoreModOperands<Tensor> scan_of(const AppliedScoreMod& scan, Device device, Sizes& sizes) {
  const ScoreMod& mod = *scan.mod;
  const ScoreModTraits& traits = mod.traits;
  check(traits.gate_logit || !scan.gates.query.defined(), operation_name, "the score modification '", mod.name,
        "' is given operands of gates, but does not read p.gate_logit");
  check(is_compiled(mod, device), operation_name, "the score modification '", mod.name, "' is not compiled for ",
        to_text(device), ": composed attention has it there");
  sizes['r'] = traits.rows;
  sizes['h'] = traits.heads;
  const Tensor table = needed_operand(traits.table, scan.table), knots = needed_operand(traits.knots, scan.knots);
  if (traits.knots) {
    const std::int64_t numbers = table.size(-1);
    check(numbers % 2 == 0, operation_name, "a table between knots has a value and a slope for each, got ", numbers,
          " numbers");
    sizes['n'] = numbers / 2;
  }
  return {.mod = &mod,
          .gate_query = scan.gates.query,
          .gate_key = needed_operand(scan.gates.query.defined(), scan.gates.key),
          .rows = needed_operand(traits.rows > 0, scan.rows),
          .heads = needed_operand(traits.heads > 0, scan.heads),
          .table = table,
          .knots = traits.knots ? knots.to_dense() : knots};
}

void add_bias(Problem& x, const Toeplitz& bias, Sizes& sizes) {
  check_defined(operation_name, bias.bias);
  check(bias.bias.rank() == 2 && bias.bias.size(1) >= sizes['K'], operation_name, "a toeplitz bias of ",
        bias.bias.size(-1), " distances does not cover ", sizes['K'], " tokens");
  x.biases.push_back({BiasKind::toeplitz, false, bias.bias, {}});
}
void add_bias(Problem& x, const RowColumn& bias, Sizes&) {
  x.biases.push_back({BiasKind::row_column, false, bias.row, bias.column});
}
void add_bias(Problem& x, const RowToeplitz& bias, Sizes&) {
  x.biases.push_back({BiasKind::row_toeplitz, bias.cap, needed_operand(true, bias.z), {}});
}
void add_bias(Problem& x, const ToeplitzProduct& bias, Sizes&) {
  x.distance = {bias.cap, needed_operand(true, bias.query), needed_operand(true, bias.key)};
}
void add_bias(Problem&, const Product&, Sizes&) {
  check_internal(false, operation_name, "a product was not joined to that of q and k");
}
void add_bias(Problem& x, const Dense& bias, Sizes& sizes) {
  check_defined(operation_name, bias.bias);
  const Shape pairs{sizes['B'], sizes['H'], sizes['T'], sizes['K']};
  x.biases.push_back({BiasKind::dense, false, broadcast_to(bias.bias, pairs), {}});
}

// An operand that logits have no derivative by is not recorded. It gets no gradient, as in reference attention.
void leave_out_unread(Problem& x) {
  if (x.scan.mod == nullptr) return;
  const ScoreModTraits& traits = x.scan.mod->traits;
  const auto leave_out = [](bool read, auto&... operands) {
    if (!read) ((operands = operands.detach()), ...);
  };
  const int of_rows = attention::first_scalar_input;
  const auto has_gradient = [&](int first, int count) { return attention::reads(traits.gradients, first, count); };
  const bool has_gates = x.scan.gate_query.defined();
  leave_out(has_gradient(attention::input_gate_logit, 1), x.scan.gate_query, x.scan.gate_key);
  leave_out(has_gradient(of_rows, traits.rows), x.scan.rows);
  leave_out(has_gradient(of_rows + traits.rows, traits.heads), x.scan.heads);
  leave_out(has_gradient(attention::input_entry, 1), x.scan.table);
  if (traits.reaches_scores(has_gates)) return;
  leave_out(false, x.q, x.k, x.moves.own, x.moves.read, x.moves.taken, x.moves.factor);
  if (!traits.after_biases) return;
  // Likewise products and biases that are added to the scores.
  leave_out(false, x.distance.query, x.distance.key);
  for (BiasOperands<Tensor>& bias : x.biases) leave_out(false, bias.values, bias.column);
}

}  // namespace

Problem problem_of(const AttentionOperands& in, const Score& score) {
  Problem x;
  x.scale = in.scale;
  x.mask = in.mask;
  x.dropout = in.dropout;
  x.dropout_stream = in.dropout_stream;
  x.q = in.q;
  x.k = in.k;
  x.v = in.v;
  for (const Tensor& own : {x.q, x.k, x.v}) {
    if (!may_be_operand(own)) check_floating(operation_name, own);
  }
  Sizes sizes;
  check_operands(x, sizes);
  const std::int64_t heads = sizes['H'], key_heads = sizes['G'];
  check(key_heads == heads || (key_heads > 0 && heads % key_heads == 0), operation_name, "the ", key_heads,
        " heads of k do not divide the ", heads, " of q");
  check(sizes['T'] <= sizes['K'], operation_name, "the queries are the last tokens, but there are ", sizes['T'],
        " of them for ", sizes['K'], " keys");
  check(in.dropout >= 0 && in.dropout < 1, operation_name, "the dropout rate must be at least 0 and below 1, got ",
        in.dropout);
  for (const std::int64_t number : {in.mask.window, in.mask.chunk, in.mask.first}) {
    check(number >= 0 && number <= AttentionMask::most, operation_name,
          "window, chunk and first of what a query sees are from 0 to 2^31 - 1, got ", number);
  }
  const SoftmaxRule& rule = score.softmax_rule;
  check(!rule.sink.defined() || rule.kind == SoftmaxRule::Kind::softmax, operation_name,
        "a sink is of a softmax alone");
  check(rule.offset == 0 || rule.kind == SoftmaxRule::Kind::sigmoid, operation_name,
        "an offset is of sigmoid weights alone");

  if (score.moved) x.moves = moves_of(*score.moved, sizes);
  if (score.scan) x.scan = scan_of(*score.scan, in.q.device(), sizes);
  x.softmax_rule = rule;
  for (const Bias& bias : score.biases) std::visit([&](const auto& shape) { add_bias(x, shape, sizes); }, bias);
  check_operands(x, sizes);
  leave_out_unread(x);
  return x;
}

}  // namespace tally::attention_call
