// Encodings by name, and their sums.
//
// A sum acts through each part in turn. Biases add up; a rotation acts on the product of q and k alone, so the other
// parts see q as projected; what must see keys before they are turned (a shift, a norm) comes before all rotations; at
// most one part may bring a scan (Score::set_scan), another rule for the weights, or a
// whole attention of its own.
#include "nn/encoding.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace tally {
namespace {

class Sum final : public Encoding {
 public:
  explicit Sum(std::vector<std::unique_ptr<Encoding>> parts) : parts_(std::move(parts)) {
    const auto rules =
        std::count_if(parts_.begin(), parts_.end(), [](const auto& part) { return part->replaces_softmax(); });
    check(rules <= 1, "encoding", "two parts of the sum replace the softmax; keep one of them");
  }

  void check_length(std::int64_t length) const override {
    for (const auto& part : parts_) part->check_length(length);
  }
  Tensor embed(const Tensor& x, std::int64_t first) const override {
    Tensor result = x;
    for (const auto& part : parts_) result = part->embed(result, first);
    return result;
  }
  void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const override {
    for (const bool first : {true, false}) {
      for (std::size_t n = 0; n < parts_.size(); ++n) {
        if (parts_[n]->before_rotations() == first) parts_[n]->rotate(q, k, v, of_part(in, n));
      }
    }
  }
  void score(const AttentionInput& in, Score& score) const override {
    for (std::size_t n = 0; n < parts_.size(); ++n) parts_[n]->score(of_part(in, n), score);
  }
  bool replaces_softmax() const override { return rule() != nullptr; }
  bool straight_through() const override { return rule() != nullptr && rule()->straight_through(); }
  Tensor weights(const Tensor& logits) const override {
    return rule() != nullptr ? rule()->weights(logits) : Encoding::weights(logits);
  }
  Tensor finish(const Tensor& output, const AttentionInput& in) const override {
    Tensor result = output;
    for (std::size_t n = 0; n < parts_.size(); ++n) result = parts_[n]->finish(result, of_part(in, n));
    return result;
  }
  Tensor mix(const AttentionInput& in) const override {
    for (const auto& part : parts_) {
      check(!part->mix(in).defined(), "encoding", "a part that computes the whole attention cannot be one of a sum");
    }
    return {};
  }
  KeptNumbers kept_numbers(std::int64_t length) const override {
    KeptNumbers all;
    for (const auto& part : parts_) {
      const KeptNumbers own = part->kept_numbers(length);
      all.token += own.token;
      all.pair += own.pair;
    }
    return all;
  }
  void project() const override {
    for (const auto& part : parts_) part->project();
  }

 private:
  static AttentionInput of_part(const AttentionInput& in, std::size_t n) {
    AttentionInput own = in;
    own.owner += concat("part ", n, ", ");
    return own;
  }
  // The part with weights of its own; null without.
  const Encoding* rule() const {
    for (const auto& part : parts_) {
      if (part->replaces_softmax()) return part.get();
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<Encoding>> parts_;
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
        "stick-breaking takes the place of the softmax, and so does another part of the sum; keep one of them");
  return score;
}

const EncodingEntry& find_encoding(std::string_view name) {
  std::vector<std::string> known;
  for (const EncodingEntry* entry : encoding_registry()) {
    if (entry->name == name) return *entry;
    known.push_back(entry->name);
  }
  const std::string nearest = nearest_name(name, known);
  if (!nearest.empty()) fail("encoding", "there is no encoding '", name, "'; did you mean '", nearest, "'?");
  std::string list;
  for (const std::string& one : known) list += concat(list.empty() ? "" : ", ", one);
  fail("encoding", "there is no encoding '", name, "'; known are ", list);
}

std::unique_ptr<Encoding> sum_of_encodings(std::vector<std::unique_ptr<Encoding>> parts) {
  return std::make_unique<Sum>(std::move(parts));
}

}  // namespace tally
