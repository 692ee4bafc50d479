// Encodings by name, and their sums.
//
// A sum acts through each part in turn. Biases add up; a rotation acts on the product of q and k alone, so the other
// parts see q as projected; what must see keys before they are turned (a shift, a norm) comes before all rotations; at
// most one part may bring another rule for the weights. Where several bring a policy, attention is materialised.
#include "nn/encoding/encoding.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "nn/attention/kv_eviction.hpp"
#include "nn/attention/mask.hpp"
#include "nn/transformer.hpp"

namespace tally {
namespace {

class Sum final : public Encoding {
 public:
  Sum(std::vector<SumPart> parts, const std::string& where) : parts_(std::move(parts)) {
    traits.reads_heads = false;
    const SumPart* normalising = nullptr;  // the part with another rule than the softmax
    for (const SumPart& part : parts_) {
      const EncodingTraits& own = part.encoding->traits;
      check(!own.mixes, "encoding", where, part.name, " computes the whole attention and cannot be part of a sum");
      if (own.replaces_softmax || own.normalises) {
        check(normalising == nullptr, "encoding", where, normalising == nullptr ? "" : normalising->name, " and ",
              part.name, " each take the place of the softmax; keep one of them");
        normalising = &part;
      }
      traits.reads_heads |= own.reads_heads;
      traits.materialised |= own.materialised || (traits.scans && own.scans);
      traits.scans |= own.scans;
      traits.by_policy |= own.by_policy;
      traits.scans_alone |= own.scans_alone;
      traits.brings_product |= own.brings_product;
      traits.takes_score_alone |= own.takes_score_alone;
      traits.normalises |= own.normalises;
      traits.embeds |= own.embeds;
      traits.rotates |= own.rotates;
      traits.replaces_softmax |= own.replaces_softmax;
      traits.straight_through |= own.straight_through;
    }
    // What tiles have no form for: a policy together with a factor of whole logits, or with a product that is part of
    // the score that it reads.
    traits.materialised |=
        (traits.by_policy && multiplies_logits()) || (traits.takes_score_alone && traits.brings_product);
    traits.reads_heads |= traits.materialised;
  }

  void check_length(std::int64_t length) const override {
    for (const SumPart& part : parts_) part.encoding->check_length(length);
  }
  bool excludes_own_key() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part.encoding->excludes_own_key(); });
  }
  bool multiplies_logits() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part.encoding->multiplies_logits(); });
  }
  std::int64_t same_up_to(std::int64_t length) const override {
    std::int64_t least = never;
    for (const SumPart& part : parts_) least = std::min(least, part.encoding->same_up_to(length));
    return least;
  }
  std::int64_t rows_by_end() const override {
    std::int64_t rows = 0;
    for (const SumPart& part : parts_) rows = std::max(rows, part.encoding->rows_by_end());
    return rows;
  }
  std::int64_t rows_by_position() const override {
    std::int64_t rows = 0;
    for (const SumPart& part : parts_) rows = std::max(rows, part.encoding->rows_by_position());
    return rows;
  }
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
        if (part.traits.scans_alone == last) part.score(of_part(in, n), score);
      }
    }
  }
  Tensor weights(const Tensor& logits, const Tensor& seen, const AttentionInput& in) const override {
    for (std::size_t n = 0; n < parts_.size(); ++n) {
      const Encoding& part = *parts_[n].encoding;
      if (part.traits.replaces_softmax) return part.weights(logits, seen, of_part(in, n));
    }
    return Encoding::weights(logits, seen, in);
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
  static AttentionInput of_part(const AttentionInput& in, std::size_t n) {
    AttentionInput own = in;
    own.owner += concat("part ", n, ", ");
    return own;
  }

  const std::vector<SumPart> parts_;
};

}  // namespace

Tensor Encoding::weights(const Tensor& logits, const Tensor& seen, const AttentionInput& in) const {
  if (seen.rank() == 3) return causal_softmax(in.mask.is_causal_only() ? logits : masked_fill_min(logits, seen));
  return masked_fill_zero(causal_softmax(masked_fill_min(logits, seen)), seen);  // a row may have no key at all
}

Tensor AttentionInput::keep(std::string_view name, const Tensor& rows, int axis) const {
  if (cache == nullptr) return rows;
  CacheEntry& kept = (*cache)[concat(owner, name)];
  kept.append(rows, axis);
  const std::int64_t count = kept.tensor().size(axis);
  check(count <= keys(), "encoding", "'", owner, name, "' has ", count, " rows after ", keys(),
        " tokens: in.keep takes each tensor once, under a name of its own, with the rows of these tokens alone");
  return kept.tensor();
}

Tensor AttentionInput::keep_keys(std::string_view name, const Tensor& rows) const {
  return keep(concat(name, kept_beside_keys), rows, 2);
}

Tensor* AttentionInput::kept(std::string_view name) const {
  return cache == nullptr ? nullptr : &(*cache)[concat(owner, name)].state();
}

Tensor AttentionInput::distances() const {
  return distances([](std::int64_t n) { return static_cast<double>(n); });
}

Tensor AttentionInput::distances(Constants::Number number, std::optional<DType> type) const {
  return constants->of(number, 0, keys(), type.value_or(dtype()), q.device());
}

Tensor AttentionInput::distances(Constants::NumberWith number, const std::vector<double>& values,
                                 std::optional<DType> type) const {
  return constants->of(number, values, 0, keys(), type.value_or(dtype()), q.device());
}

Tensor AttentionInput::distances(Constants::Element element, std::int64_t columns) const {
  return constants->of(element, 0, keys(), columns, dtype(), q.device());
}

Tensor AttentionInput::keys_seen(Constants::Number number, std::optional<DType> type) const {
  return constants->of_keys_seen(number, mask, first, keys(), type.value_or(dtype()), q.device());
}

EncodingSetup EncodingSetup::of(const ModelOptions& model, std::int64_t max_length, const Initializer& start) {
  EncodingSetup setup;
  setup.width = model.width;
  setup.heads = model.heads;
  setup.key_heads = model.key_heads();
  setup.head_width = model.width_of_head();
  setup.layers = model.layers;
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

Score score_of(const Encoding& encoding, const AttentionInput& in) {
  Score score;
  encoding.score(in, score);
  // What is told need not be there in this layer: an option may leave some without.
  const auto check_told = [](bool has, bool told, std::string_view what, std::string_view trait) {
    check(!has || told, "encoding", what, " that its file does not tell of: write .", trait,
          " = true at the end of its TALLY_ENCODING line");
  };
  const bool may_scan = encoding.traits.scans || encoding.traits.scans_alone;
  check_told(score.scan.has_value(), may_scan, "a scan (a running sum along the keys, or a policy)", "scans");
  const AppliedScoreMod* const pair = score.scan ? &*score.scan : nullptr;
  for (Bias& bias : score.biases) {
    auto* dense = std::get_if<Dense>(&bias);
    if (dense != nullptr && dense->of_score && score.factor != 1) *dense = {dense->bias * score.factor};
  }
  check_told(!score.softmax_rule.is_softmax(), encoding.traits.normalises, "another rule than the softmax",
             "normalises");
  const bool product = std::any_of(score.biases.begin(), score.biases.end(),
                                   [](const Bias& bias) { return std::holds_alternative<Product>(bias); });
  check_told(product, encoding.traits.brings_product, "a product beside that of q and k", "brings_product");
  check_told(pair != nullptr && pair->materialised_logit, encoding.traits.materialised,
             "a policy that tiles do not have", "materialised");
  check_told(score.takes_score_alone(), encoding.traits.takes_score_alone,
             "a policy that reads the score of q and k alone", "takes_score_alone");
  check_told(pair != nullptr && !pair->mod->traits.adds_entry, encoding.traits.by_policy || encoding.traits.scans_alone,
             "a policy with another logit than p.s + p.entry", "by_policy");
  return score;
}

std::string other_name_hint(std::string_view published) {
  // Of letters alone others would be nearer: cope to nope.
  for (const EncodingEntry* entry : encoding_registry()) {
    if (!published.empty() && entry->traits.also_called == published) return concat("; here it is '", entry->name, "'");
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
  fail("encoding", "there is no encoding '", name, "'", other.empty() ? did_you_mean_or_known(name, known) : other);
}

std::unique_ptr<Encoding> sum_of_encodings(std::vector<SumPart> parts, const std::string& where) {
  return std::make_unique<Sum>(std::move(parts), where);
}

}  // namespace tally
