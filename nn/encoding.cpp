// Encodings by name, and their sums.
//
// A sum acts through each part in turn. Biases add up; a rotation acts on the product of q and k alone, so the other
// parts see q as projected; what must see keys before they are turned (a shift, a norm) comes before all rotations; at
// most one part may bring a scan (Score::set_scan), another rule for the weights, or a
// whole attention of its own.
#include "nn/encoding.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.hpp"

namespace tally {
namespace {

class Sum final : public Encoding {
 public:
  Sum(std::vector<SumPart> parts, std::string where) : parts_(std::move(parts)), where_(std::move(where)) {
    for (const SumPart& part : parts_) {
      if (!part.encoding->replaces_softmax()) continue;
      check(rule_ == nullptr, "encoding", where_, rule_ == nullptr ? "" : rule_->name, " and ", part.name,
            " each replace the softmax; keep one of them");
      rule_ = &part;
    }
  }

  void check_length(std::int64_t length) const override {
    for (const SumPart& part : parts_) part.encoding->check_length(length);
  }
  Tensor embed(const Tensor& x, std::int64_t first) const override {
    Tensor result = x;
    for (const SumPart& part : parts_) result = part.encoding->embed(result, first);
    return result;
  }
  void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const override {
    for (const bool first : {true, false}) {
      for (std::size_t n = 0; n < parts_.size(); ++n) {
        if (parts_[n].encoding->before_rotations() == first) parts_[n].encoding->rotate(q, k, v, of_part(in, n));
      }
    }
  }
  void score(const AttentionInput& in, Score& score) const override {
    std::string_view scanning;  // the part that the scan is of
    for (std::size_t n = 0; n < parts_.size(); ++n) {
      const SumPart& part = parts_[n];
      std::optional<Scan> before = std::exchange(score.scan, std::nullopt);
      part.encoding->score(of_part(in, n), score);
      if (!score.scan.has_value()) {
        score.scan = std::move(before);
        continue;
      }
      check(!before.has_value(), "encoding", where_, scanning, " and ", part.name,
            " each want a running sum along the keys, but a score has one: each such encoding defines what the sum "
            "means; keep one of them (biases and rotations may join it)");
      check(rule_ == nullptr || !std::holds_alternative<StickBreaking>(*score.scan), "encoding", where_,
            rule_ == nullptr ? "" : rule_->name, " and ", part.name,
            " each take the place of the softmax; keep one of them");
      scanning = part.name;
    }
  }
  bool replaces_softmax() const override { return rule_ != nullptr; }
  bool straight_through() const override { return rule_ != nullptr && rule_->encoding->straight_through(); }
  bool reads_back() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](const SumPart& part) { return part.encoding->reads_back(); });
  }
  Tensor weights(const Tensor& logits) const override {
    return rule_ != nullptr ? rule_->encoding->weights(logits) : Encoding::weights(logits);
  }
  Tensor finish(const Tensor& output, const AttentionInput& in) const override {
    Tensor result = output;
    for (std::size_t n = 0; n < parts_.size(); ++n) result = parts_[n].encoding->finish(result, of_part(in, n));
    return result;
  }
  Tensor mix(const AttentionInput& in) const override {
    for (const SumPart& part : parts_) {
      check(!part.encoding->mix(in).defined(), "encoding", where_, part.name,
            " computes the whole attention and cannot be part of a sum");
    }
    return {};
  }
  KeptNumbers kept_numbers(std::int64_t length) const override {
    KeptNumbers all;
    for (const SumPart& part : parts_) {
      const KeptNumbers own = part.encoding->kept_numbers(length);
      all.token += own.token;
      all.pair += own.pair;
    }
    return all;
  }
  void project() const override {
    for (const SumPart& part : parts_) part.encoding->project();
  }
  std::int64_t distances_without_row(std::int64_t length) const override {
    std::int64_t all = 0;
    for (const SumPart& part : parts_) all += part.encoding->distances_without_row(length);
    return all;
  }

 private:
  static AttentionInput of_part(const AttentionInput& in, std::size_t n) {
    AttentionInput own = in;
    own.owner += concat("part ", n, ", ");
    return own;
  }

  const std::vector<SumPart> parts_;
  const std::string where_;
  const SumPart* rule_ = nullptr;  // the part with weights of its own; null without
};

}  // namespace

Tensor AttentionInput::keep(std::string_view name, const Tensor& rows, int axis) const {
  if (cache == nullptr) return rows;
  auto& kept = (*cache)[concat(owner, name)];
  kept = kept.defined() ? concat(std::vector<Tensor>{kept, rows}, axis) : rows;
  return kept;
}

Score score_of(const Encoding& encoding, const AttentionInput& in) {
  Score score;
  encoding.score(in, score);
  const bool breaks_a_stick = score.scan.has_value() && std::holds_alternative<StickBreaking>(*score.scan);
  check(!breaks_a_stick || !encoding.replaces_softmax(), "encoding",
        "both stick-breaking and weights of an encoding's own take the place of the softmax; keep one of them");
  return score;
}

std::string other_name_hint(std::string_view published) {
  // Of letters alone others would be nearer: cope to nope.
  constexpr std::pair<std::string_view, std::string_view> names[] = {{"nope", "none"}, {"sba", "stick-breaking"}};
  for (const auto& [name, here] : names) {
    if (name == published) return concat("; here it is '", here, "'");
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
  if (!other.empty()) fail("encoding", "there is no encoding '", name, "'", other);
  const std::string nearest = nearest_name(name, known);
  if (!nearest.empty()) fail("encoding", "there is no encoding '", name, "'; did you mean '", nearest, "'?");
  std::string list;
  for (const std::string& one : known) list += concat(list.empty() ? "" : ", ", one);
  fail("encoding", "there is no encoding '", name, "'; known are ", list);
}

std::unique_ptr<Encoding> sum_of_encodings(std::vector<SumPart> parts, std::string where) {
  return std::make_unique<Sum>(std::move(parts), std::move(where));
}

}  // namespace tally
