// Encodings by name, and their combinations.
//
// A combination calls the hooks of each part in turn. Biases add up. A rotation acts only on the score q.k, so the
// other parts get q as projected. Shifts and norms of keys precede all rotations. At most one part may replace the
// softmax. If several parts have a policy, attention is materialised.
#include "nn/encoding/encoding.hpp"

#include <algorithm>
#include <utility>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "nn/attention/composed.hpp"
#include "nn/attention/kv_cache.hpp"
#include "nn/transformer.hpp"

namespace tally {
namespace {

constexpr const char* replaced_twice = ": two parts each take the place of the softmax; keep one of them";

class Sum final : public Encoding {
 public:
  Sum(std::vector<SumPart> parts, const std::string& name) : parts_(std::move(parts)) {
    traits.reads_heads = false;
    for (const SumPart& part : parts_) {
      const EncodingTraits& own = part.encoding->traits;
      check(!own.mixes, "encoding", "{}: {} computes the whole attention and cannot be combined", name, part.name);
      check(!traits.replaces_softmax || !own.replaces_softmax, "encoding", "{}{}", name, replaced_twice);
      traits.reads_heads |= own.reads_heads;
      traits.embeds |= own.embeds;
      traits.rotates |= own.rotates;
      traits.scores |= own.scores;
      traits.replaces_softmax |= own.replaces_softmax;
      traits.straight_through |= own.straight_through;
      traits.reads_distances |= own.reads_distances;
    }
  }

  void check_length(std::int64_t length) const override {
    for (const SumPart& part : parts_) part.encoding->check_length(length);
  }
  bool excludes_own_key() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part.encoding->excludes_own_key(); });
  }
  std::int64_t same_up_to(std::int64_t length) const override {
    std::int64_t least = never;
    for (const SumPart& part : parts_) least = std::min(least, part.encoding->same_up_to(length));
    return least;
  }
  std::int64_t rows_by_end() const override { return most(&Encoding::rows_by_end); }
  std::int64_t rows_by_position() const override { return most(&Encoding::rows_by_position); }
  Tensor embed(const Tensor& x, const TokenPositions& at) const override {
    Tensor result = x;
    for (const SumPart& part : parts_) result = part.encoding->embed(result, at);
    return result;
  }
  void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const override {
    for (const bool first : {true, false}) {
      for (std::size_t n = 0; n < parts_.size(); ++n) {
        const Encoding& part = *parts_[n].encoding;
        if (part.traits.before_rotations == first) part.rotate(q, k, v, of_part(in, n));
      }
    }
  }
  void score(const AttentionInput& in, Score& score) const override {
    for (const bool last : {false, true}) {
      for (std::size_t n = 0; n < parts_.size(); ++n) {
        const Encoding& part = *parts_[n].encoding;
        if (part.traits.after_scores == last) part.score(of_part(in, n), score);
      }
    }
  }
  Tensor weights(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const override {
    for (std::size_t n = 0; n < parts_.size(); ++n) {
      const Encoding& part = *parts_[n].encoding;
      if (part.traits.replaces_softmax) return part.weights(logits, mask, of_part(in, n));
    }
    return Encoding::weights(logits, mask, in);
  }
  Tensor finish(const Tensor& output, const AttentionInput& in) const override {
    Tensor result = output;
    for (std::size_t n = 0; n < parts_.size(); ++n) result = parts_[n].encoding->finish(result, of_part(in, n));
    return result;
  }
  void project() const override {
    for (const SumPart& part : parts_) part.encoding->project();
  }

 private:
  std::int64_t most(std::int64_t (Encoding::*rows)() const) const {
    std::int64_t found = 0;
    for (const SumPart& part : parts_) found = std::max(found, (part.encoding.get()->*rows)());
    return found;
  }
  static AttentionInput of_part(const AttentionInput& in, std::size_t n) {
    AttentionInput own = in;
    own.owner += formatted("part {}, ", n);
    return own;
  }

  const std::vector<SumPart> parts_;
};

}  // namespace

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
  setup.parameter = [&start](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    return start.make(name, shape, fill);
  };
  setup.constants = std::make_shared<Constants>(max_length);
  return setup;
}

EncodingSetup EncodingSetup::counting() const {
  EncodingSetup counting = *this;
  counting.device = meta_of(Device{});
  counting.parameter = [type = dtype, device = counting.device](std::string_view, const Shape& shape, const Fill&,
                                                                Scope) { return Tensor::empty(shape, type, device); };
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

EncodingTraits derived_traits(const Encoding& encoding, const EncodingSetup& setup, const std::string& name) {
  EncodingTraits traits = encoding.traits;
  if (!traits.scores) return traits;
  const NoGrad only_values;
  const auto rows = [&](std::int64_t heads) {
    return Tensor::empty({1, heads, 2, setup.head_width}, setup.dtype, setup.device);
  };
  const Tensor x = Tensor::empty({1, 2, setup.width}, setup.dtype, setup.device);
  const Tensor q = rows(setup.heads), k = rows(setup.key_heads), v = rows(setup.key_heads);
  AttentionInput in{.x = x, .q = q, .k = k, .v = v, .scale = 1};
  if (traits.rotates) {
    Tensor rotated_q = q, rotated_k = k, rotated_v = v;
    encoding.rotate(rotated_q, rotated_k, rotated_v, in);
    in.rotated_q = rotated_q, in.rotated_k = rotated_k, in.rotated_v = rotated_v;
  }
  const Score score = score_of(encoding, in);
  check(!traits.replaces_softmax || score.softmax_rule.is_softmax(), "encoding", "{}{}", name, replaced_twice);
  traits.materialised = !score.tiled_on(setup.device);
  traits.reads_heads |= traits.materialised;
  return traits;
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

std::unique_ptr<Encoding> sum_of_encodings(std::vector<SumPart> parts, const std::string& name) {
  return std::make_unique<Sum>(std::move(parts), name);
}

}  // namespace tally
