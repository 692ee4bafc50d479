#include "nn/attention/attention.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/composed.hpp"
#include "nn/attention/kv_cache.hpp"
#include "nn/model.hpp"

namespace tally {

Tensor split_heads(const Tensor& x, std::int64_t heads) {
  return transpose(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), 1, 2);
}

Tensor merge_heads(const Tensor& x) {
  return reshape(transpose(x, 1, 2), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

namespace {
WithBias biases(const ModelOptions& model) { return model.bias ? WithBias::yes : WithBias::no; }

// Undefined if the three projections have separate parameters.
StackedParameters stacked_parameters(const Initializer& start, const ModelOptions& model) {
  const bool separate = is_cpu(start.device()) || start.has_source() || model.heads != model.key_heads();
  if (separate || model.qk_norm != "none") return {};
  return {start, 3, model.width, model.heads * model.width_of_head(), biases(model)};
}

}  // namespace

Attention::Attention(const Initializer& start, const ModelOptions& model, double output_gain)
    : heads_(model.heads),
      key_heads_(model.key_heads()),
      composed_(model.attention == "composed"),
      stacked_(stacked_parameters(start, model)),
      query_(stacked_.next(start.at("query")), model.width, heads_ * model.width_of_head(), biases(model)),
      key_(stacked_.next(start.at("key")), model.width, key_heads_ * model.width_of_head(), biases(model)),
      value_(stacked_.next(start.at("value")), model.width, key_heads_ * model.width_of_head(), biases(model)),
      output_(start.at("output"), heads_ * model.width_of_head(), model.width, biases(model), output_gain),
      norm_by_head_(model.qk_norm == "head") {
  add_child("query", query_);
  add_child("key", key_);
  add_child("value", value_);
  add_child("output", output_);
  add_matmul_operand(stacked_.weight());
  add_matmul_operand(stacked_.bias());
  if (model.qk_norm != "none") {
    const auto make = [&](std::string_view name, std::int64_t heads) {
      const std::int64_t width = norm_by_head_ ? model.width_of_head() : heads * model.width_of_head();
      auto made = std::make_unique<Norm>(start.at(name), model.norm, width, model.norm_eps);
      add_child(name, *made);
      return made;
    };
    query_norm_ = make("query_norm", heads_);
    key_norm_ = make("key_norm", key_heads_);
  }
  for (std::int64_t head = 0; head < heads_; ++head) {
    dropout_.emplace_back(start, head == 0 ? "weights" : formatted("weights.{}", head), model.dropout);
  }
}

namespace {

// o [B, H, T, d] for a group of heads. All inputs have only these heads. Fills the trace, if given.
Tensor attend_group(const AttentionInput& in, const Encoding& encoding, bool composed, const Dropout& dropout,
                    const ForwardContext& pass, AttentionTrace* trace) {
  if (encoding.traits.mixes) {
    check(dropout.rate(pass) == 0, "attention",
          "model.dropout leaves out weights, and an encoding that computes the whole attention (mix) has none to be "
          "left out");
    return encoding.finish(encoding.mix(in), in);
  }
  const std::int64_t weights = in.q.size(1) * in.q.size(2) * in.keys();  // per sequence
  AttentionOperands operands{in.q, in.k, in.v, in.scale, in.mask, dropout.rate(pass), dropout.stream(pass, weights)};
  if (is_matmul_input(in.q)) operands.precision = OutputPrecision::matmul_input;  // the output projection reads it
  encoding.rotate(operands.q, operands.k, operands.v, in);
  AttentionInput rotated = in;
  rotated.rotated_q = operands.q;
  rotated.rotated_k = operands.k;
  rotated.rotated_v = operands.v;
  operands.k = in.keep("keys of the product", operands.k, 2);
  operands.v = in.keep("values of the sum", operands.v, 2);
  rotated.materialised = composed || trace != nullptr || encoding.traits.is_composed();
  const Score score = score_of(encoding, rotated);
  check(!in.has_random_positions() || !(encoding.traits.reads_distances || score.reads_distances()), "positions",
        "an encoding here computes with the number of tokens between query and key. Random positions are for encodings "
        "that read the position of each token (tasks/recipes.md)");
  const bool materialised = rotated.materialised || !score.tiled_on(in.q.device());
  const Tensor output = materialised ? composed_attention(operands, score, encoding, rotated, dropout, pass, trace)
                                     : tiled_attention(operands, score);
  return encoding.finish(output, in);
}

// Concatenates a trace member of all groups of heads. Heads without it get 0; undefined if no group has it.
Tensor side_by_side(const std::vector<AttentionTrace>& traces, const LayerEncoding& groups,
                    Tensor AttentionTrace::*member) {
  const auto some = std::find_if(traces.begin(), traces.end(), [&](const auto& t) { return (t.*member).defined(); });
  if (some == traces.end()) return {};
  std::vector<Tensor> parts;
  for (std::size_t n = 0; n < traces.size(); ++n) {
    Shape shape = ((*some).*member).shape();
    shape[1] = groups[n].count;
    const Tensor& own = traces[n].*member;
    parts.push_back(own.defined() ? own : Tensor::zeros(shape, ((*some).*member).dtype(), ((*some).*member).device()));
  }
  return parts.size() == 1 ? parts.front() : concat(parts, 1);
}

}  // namespace

Tensor Attention::forward(const Tensor& x, const LayerEncoding& encoding, const ForwardContext& pass,
                          const KVContext& earlier, Tensor residual) const {
  const std::vector<Tensor> qkv = project(x, encoding, pass, input_precision(encoding, pass, earlier));
  const Tensor attended = attend(x, qkv[0], qkv[1], qkv[2], encoding, pass, earlier);
  return output_.forward(merge_heads(attended), std::move(residual));
}

std::vector<Tensor> Attention::project(const Tensor& x, const LayerEncoding& encoding, const ForwardContext& pass,
                                       OutputPrecision precision) const {
  const bool tiled = !composed_ && pass.trace == nullptr && encoding.size() == 1;
  // Results of one matmul share their memory: with a rotation, unrotated q and k would be kept as long as v.
  if (stacked_.defined() && tiled && !encoding.front().encoding->traits.rotates) {
    std::vector<LinearWeights> layers;
    for (const Linear* layer : {&query_, &key_, &value_}) layers.push_back({layer->weight(), layer->bias()});
    return linear_heads(x, {stacked_.weight(), stacked_.bias()}, layers, heads_, precision);
  }
  const auto projected = [&](const Linear& by, const Norm* norm, std::int64_t heads) {
    if (norm == nullptr) return split_heads(by.forward(x, {}, precision), heads);
    const Tensor rows = by.forward(x);
    const Shape by_head{rows.size(0), rows.size(1), heads, rows.size(2) / heads};
    const Tensor normed = norm->forward(norm_by_head_ ? reshape(rows, by_head) : rows, precision);
    return transpose(reshape(normed, by_head), 1, 2);
  };
  return {projected(query_, query_norm_.get(), heads_), projected(key_, key_norm_.get(), key_heads_),
          projected(value_, nullptr, key_heads_)};
}

OutputPrecision Attention::input_precision(const LayerEncoding& encoding, const ForwardContext& pass,
                                           const KVContext& earlier) const {
  const bool tiled = !composed_ && pass.trace == nullptr && earlier.cache == nullptr;
  const bool reads = encoding.size() != 1 || encoding.front().encoding->traits.reads_heads;
  return tiled && !reads ? OutputPrecision::matmul_input : OutputPrecision::full;
}

Tensor Attention::attend(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                         const LayerEncoding& encoding, const ForwardContext& pass, const KVContext& earlier) const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  std::vector<Tensor> outputs;
  std::vector<AttentionTrace> traces(encoding.size());
  for (std::size_t n = 0; n < encoding.size(); ++n) {
    const HeadGroup& group = encoding[n];
    const auto heads_of = [](const Tensor& all, std::int64_t first, std::int64_t count) {
      return count == all.size(1) ? all : slice(all, 1, first, first + count);
    };
    const Tensor own_q = heads_of(q, group.first, group.count);
    const Tensor own_k = heads_of(k, group.first_key, group.key_count);
    const Tensor own_v = heads_of(v, group.first_key, group.key_count);
    AttentionInput in{x, own_q, own_k, own_v, scale, earlier.first, earlier.cache, group.encoding->constants};
    in.mask = group.mask;
    in.at = pass.positions;
    if (encoding.size() > 1) in.owner = formatted("group {}, ", n);
    outputs.push_back(attend_group(in, *group.encoding, composed_, dropout_[static_cast<std::size_t>(group.first)],
                                   pass, pass.trace != nullptr ? &traces[n] : nullptr));
  }
  if (pass.trace != nullptr) {
    AttentionTrace& layer = pass.trace->emplace_back();
    for (const auto& [name, tensor] : attention_trace_parts) layer.*tensor = side_by_side(traces, encoding, tensor);
  }
  return outputs.size() == 1 ? outputs.front() : concat(outputs, 1);
}

bool Attention::continues(const LayerEncoding& encoding) const {
  return !composed_ && std::none_of(encoding.begin(), encoding.end(),
                                    [](const HeadGroup& group) { return group.encoding->traits.is_composed(); });
}

}  // namespace tally
