// The inputs of encodings, and encodings by name.
#include "nn/encoding/encoding.hpp"

#include <algorithm>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "nn/attention/composed.hpp"
#include "nn/attention/kv_cache.hpp"
#include "nn/transformer.hpp"

namespace tally {

Tensor Encoding::weights(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const {
  if (mask.rank() == 3) return causal_softmax(in.mask.is_causal_only() ? logits : masked_fill_min(logits, mask));
  return masked_fill_zero(causal_softmax(masked_fill_min(logits, mask)), mask);  // a row may have no key at all
}

Tensor AttentionInput::keep(std::string_view name, const Tensor& rows, int axis) const {
  if (cache == nullptr) return rows;
  CacheEntry& kept = (*cache)[formatted("{}{}", owner, name)];
  kept.append(rows, axis);
  const std::int64_t count = kept.tensor().size(axis);
  check(count <= keys(), "encoding",
        "'{}{}' has {} rows after {} tokens: in.keep takes each tensor once, under a name of its own, with the rows of "
        "these tokens alone",
        owner, name, count, keys());
  return kept.tensor();
}

const Tensor& AttentionInput::query(bool rotated) const {
  if (!rotated || !rotated_q.defined()) return q;
  check(rotated_q.size(3) == q.size(3), "encoding",
        "a rotation here changes the width of q from {} to {}, so no other part can use the rotated q", q.size(3),
        rotated_q.size(3));
  return rotated_q;
}

Tensor* AttentionInput::cached_state(std::string_view name) const {
  return cache == nullptr ? nullptr : &(*cache)[formatted("{}{}", owner, name)].state();
}

Tensor AttentionInput::positions() const {
  if (at.read != nullptr) *at.read = true;
  if (at.drawn.defined()) return at.drawn;
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  return constants->of(number, first, keys(), DType::f64, q.device());
}

Tensor AttentionInput::distances() const {
  return distances([](std::int64_t n) { return static_cast<double>(n); });
}

Tensor AttentionInput::distances(Constants::Number number, std::optional<DType> type) const {
  return constants->of(number, 0, keys(), type.value_or(dtype()), q.device());
}

Tensor AttentionInput::distances(Constants::Element element, std::int64_t columns) const {
  return constants->of(element, 0, keys(), columns, dtype(), q.device());
}

Tensor AttentionInput::distances(Constants::ElementOfValues element, std::int64_t columns,
                                 std::vector<double> values) const {
  return constants->of(element, 0, keys(), columns, std::move(values), dtype(), q.device());
}

Tensor AttentionInput::keys_seen(Constants::Number number, std::optional<DType> type) const {
  return constants->of_keys_seen(number, mask, first, keys(), type.value_or(dtype()), q.device());
}

void clamp_parameter(Tensor parameter, double low, double high) {
  const NoGrad not_recorded;
  const auto bound = [&](double value) { return Tensor::full({1}, value, parameter.dtype(), parameter.device()); };
  parameter.copy_from(minimum(maximum(parameter.detach(), bound(low)), bound(high)));
}

EncodingSetup EncodingSetup::of(const ModelOptions& model, std::int64_t max_length, const Initializer& start) {
  EncodingSetup setup;
  setup.width = model.width;
  setup.heads = model.heads;
  setup.key_heads = model.key_heads();
  setup.head_width = model.width_of_head();
  setup.max_length = max_length;
  setup.bias = model.bias;
  setup.start = &start;
  setup.dtype = start.dtype();
  setup.device = start.device();
  setup.make_parameter = [&start](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    return start.make(name, shape, fill);
  };
  setup.constants = std::make_shared<Constants>(max_length);
  return setup;
}

Tensor EncodingSetup::linear_weight(std::string_view name, std::int64_t rows) const {
  return parameter(name, {rows, width}, start->linear_weight(width));
}

Tensor EncodingSetup::linear_bias(std::string_view name, std::int64_t rows) const {
  return bias ? parameter(name, {rows}, start->linear_bias(width)) : Tensor();
}

EncodingSetup EncodingSetup::counting() const {
  EncodingSetup counting = *this;
  counting.device = meta_of(Device{});
  counting.make_parameter = [type = dtype, device = counting.device](std::string_view, const Shape& shape, const Fill&,
                                                                     Scope) {
    return Tensor::empty(shape, type, device);
  };
  counting.constants = std::make_shared<Constants>();
  return counting;
}

Score score_of(const Encoding& encoding, const AttentionInput& in) {
  Score score;
  encoding.score(in, score);
  for (Bias& bias : score.biases) {
    check_axes(bias);
    auto* dense = std::get_if<Dense>(&bias);
    if (dense != nullptr && dense->of_score && score.factor != 1) *dense = {dense->bias * score.factor};
  }
  return score;
}

bool EncodingEntry::has_rotated_query() const {
  return std::ranges::count(list_options(*make_options()), rotated_query_option, &OptionInfo::name) > 0;
}

std::string other_name_hint(std::string_view published) {
  // The nearest name by spelling would be another encoding: cope for nope.
  for (const EncodingEntry* entry : encoding_registry()) {
    if (!published.empty() && entry->traits.also_called == published)
      return formatted("; here it is '{}'", entry->name);
  }
  return "";
}

const EncodingEntry& find_encoding(std::string_view name) {
  std::vector<std::string> known;
  for (const EncodingEntry* entry : encoding_registry()) {
    if (entry->name == name) return *entry;
    known.push_back(entry->name);
  }
  const std::string other = other_name_hint(name);
  fail("encoding", "there is no encoding '{}'{}", name, other.empty() ? did_you_mean_or_known(name, known) : other);
}

}  // namespace tally
