// Encodings by name, and their sums.
//
// A sum acts through each part in turn. Biases add up; a rotation acts on the product of q and k alone, so the other
// parts see q as projected; at most one part may bring a scan (Score::set_scan), another rule for the weights, or a
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
    for (const auto& part : parts_) part->rotate(q, k, v, in);
  }
  void score(const AttentionInput& in, Score& score) const override {
    for (const auto& part : parts_) part->score(in, score);
  }
  bool replaces_softmax() const override { return rule() != nullptr; }
  Tensor weights(const Tensor& logits) const override {
    return rule() != nullptr ? rule()->weights(logits) : Encoding::weights(logits);
  }
  Tensor finish(const Tensor& output, const AttentionInput& in) const override {
    Tensor result = output;
    for (const auto& part : parts_) result = part->finish(result, in);
    return result;
  }
  Tensor mix(const AttentionInput& in) const override {
    for (const auto& part : parts_) {
      check(!part->mix(in).defined(), "encoding", "a part that computes the whole attention cannot be one of a sum");
    }
    return {};
  }

 private:
  // The part with weights of its own; null without.
  const Encoding* rule() const {
    for (const auto& part : parts_) {
      if (part->replaces_softmax()) return part.get();
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<Encoding>> parts_;
};

bool has_option(Options& options, std::string_view name) {
  const std::vector<OptionInfo> infos = list_options(options);
  return std::any_of(infos.begin(), infos.end(), [&](const OptionInfo& info) { return info.name == name; });
}

}  // namespace

Tensor AttentionInput::keep(std::string_view name, const Tensor& rows, int axis) const {
  if (cache == nullptr) return rows;
  auto& kept = (*cache)[std::string(name)];
  kept = kept.defined() ? concat(std::vector<Tensor>{kept, rows}, axis) : rows;
  return kept;
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

EncodingChoice EncodingChoice::parse(std::string_view text) {
  EncodingChoice choice;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    check(!name.empty(), "encoding", "'", text, "' lacks a name; write one encoding or a sum like cope+rope");
    const EncodingEntry& entry = find_encoding(name);
    for (const Part& part : choice.parts)
      check(part.entry != &entry, "encoding", "'", text, "' names ", name, " twice");
    choice.parts.push_back({&entry, entry.make_options()});
    begin = end + 1;
  }
  std::sort(choice.parts.begin(), choice.parts.end(),
            [](const Part& a, const Part& b) { return a.entry->name < b.entry->name; });
  return choice;
}

EncodingChoice EncodingChoice::clone() const {
  EncodingChoice copy;
  for (const Part& part : parts) copy.parts.push_back({part.entry, part.options->clone()});
  return copy;
}

std::string EncodingChoice::text() const {
  std::string text;
  for (const Part& part : parts) text += concat(text.empty() ? "" : "+", part.entry->name);
  return text;
}

void EncodingChoice::set_option(std::string_view name, std::string_view value) {
  if (const std::size_t dot = name.find('.'); dot != std::string_view::npos) {
    const std::string_view part_name = name.substr(0, dot);
    for (const Part& part : parts) {
      if (part.entry->name == part_name)
        return tally::set_option(*part.options, part_name, name.substr(dot + 1), value);
    }
    fail("encoding", "option ", name, " is for '", part_name, "', which is not part of ", text());
  }
  // In a sum only what one part alone has can go without that part's name.
  const Part* owner = parts.size() == 1 ? &parts.front() : nullptr;
  std::vector<std::string> candidates;
  for (const Part& part : parts) {
    if (parts.size() > 1 && has_option(*part.options, name)) {
      if (owner != nullptr) {
        fail("encoding", "option ", name, " is ambiguous: write ", owner->entry->name, ".", name, " or ",
             part.entry->name, ".", name);
      }
      owner = &part;
    }
    for (const OptionInfo& info : list_options(*part.options)) candidates.push_back(info.name);
  }
  if (owner != nullptr) return tally::set_option(*owner->options, owner->entry->name, name, value);
  const std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) fail(text(), "unknown option '", name, "'; did you mean '", nearest, "'?");
  fail(text(), "unknown option '", name, "'");
}

LayerEncoding EncodingChoice::make(const EncodingSetup& setup) const {
  check(!parts.empty(), "encoding", "nothing is chosen");
  std::vector<std::unique_ptr<Encoding>> made;
  for (const Part& part : parts) {
    EncodingSetup own = setup;
    own.parameter = [&setup, &part](std::string_view name, const Shape& shape, const Fill& fill, Scope scope) {
      return setup.parameter(concat(part.entry->name, ".", name), shape, fill, scope);
    };
    made.push_back(part.entry->make(own, *part.options));
  }
  LayerEncoding layer(1);
  layer[0].count = setup.heads;
  layer[0].encoding = made.size() == 1 ? std::move(made.front()) : std::make_unique<Sum>(std::move(made));
  return layer;
}

}  // namespace tally
