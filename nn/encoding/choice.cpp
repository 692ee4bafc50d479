// A combination calls the hooks of each part in turn. Biases add up. A rotation acts only on the score q.k, so the
// other parts get q as projected. Shifts and norms of keys precede all rotations. At most one part may replace the
// softmax. If several parts have a policy, attention is materialised.
#include "nn/encoding/choice.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include "autograd/node.hpp"
#include "core/device/backend.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

using Range = EncodingChoice::Range;
using Assignment = EncodingChoice::Assignment;

std::optional<std::int64_t> whole_number(std::string_view digits) {
  std::int64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

// "2" or "1-3"; `kind` is "layers" or "heads".
Range parse_range(std::string_view text, std::string_view kind, std::string_view whole) {
  const std::size_t dash = text.find('-');
  const auto first = whole_number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : whole_number(text.substr(dash + 1));
  check(first && last && *first <= *last && *last < Range::end, "encoding", "'{}' in '{}' names no {}; write 2 or 1-3",
        text, whole, kind);
  return {*first, *last};
}

// A setting of the attention mask, by its name in brackets.
struct MaskField {
  std::string_view name;
  std::int64_t AttentionMask::*member;
};
constexpr std::array<MaskField, 3> mask_fields{
    {{"window", &AttentionMask::window}, {"chunk", &AttentionMask::chunk}, {"first", &AttentionMask::first}}};

// "window=256,first=4"
AttentionMask parse_mask(std::string_view text, std::string_view whole) {
  AttentionMask mask;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto* const known = std::find_if(mask_fields.begin(), mask_fields.end(), [&](const MaskField& field) {
      return field.name == part.substr(0, equals);
    });
    const auto value = equals < part.size() ? whole_number(part.substr(equals + 1)) : std::nullopt;
    check(known != mask_fields.end() && value.has_value() && *value > 0 && *value <= AttentionMask::most, "encoding",
          "'{}' in '{}' is no part of an attention mask; write window=256, chunk=256 or first=4, each above 0", part,
          whole);
    check(mask.*known->member == 0, "encoding", "'{}' says {} twice", whole, known->name);
    mask.*known->member = *value;
  }
  check(!mask.is_causal_only(), "encoding", "first = {} has no effect without a window or a chunk", mask.first);
  return mask;
}

bool by_name(const EncodingEntry* a, const EncodingEntry* b) { return a->name < b->name; }

bool contains(const std::vector<const EncodingEntry*>& sum, const EncodingEntry* entry) {
  return std::find(sum.begin(), sum.end(), entry) != sum.end();
}

// Assignments that act on one layer, by heads.
std::vector<Assignment> assignments_of(const std::vector<Assignment>& assignments, std::int64_t layer) {
  std::vector<Assignment> found;
  std::copy_if(assignments.begin(), assignments.end(), std::back_inserter(found),
               [&](const Assignment& assignment) { return assignment.layers.holds(layer); });
  std::stable_sort(found.begin(), found.end(),
                   [](const Assignment& a, const Assignment& b) { return a.heads.first < b.heads.first; });
  return found;
}

std::int64_t first_layer_of(const std::vector<Assignment>& assignments, const EncodingEntry* entry) {
  std::int64_t first = Range::end;
  for (const Assignment& assignment : assignments) {
    if (contains(assignment.sum, entry)) first = std::min(first, assignment.layers.first);
  }
  return first;
}

// The smallest number of layers or heads that holds all these.
std::int64_t least_count(const std::vector<Assignment>& assignments, Range Assignment::*range) {
  std::int64_t least = 1;
  for (const Assignment& assignment : assignments) {
    if (!(assignment.*range).all()) least = std::max(least, (assignment.*range).last + 1);
  }
  return least;
}

// The group of heads first .. end - 1, of `heads` in all that share `key_heads`, without its encoding.
HeadGroup group_of(std::int64_t first, std::int64_t end, std::int64_t heads, std::int64_t key_heads) {
  const std::int64_t share = heads / key_heads, first_key = first / share, end_key = (end - 1) / share + 1;
  check(end_key - first_key == 1 || (first % share == 0 && end % share == 0), "encoding",
        "heads {} share heads of keys unevenly: each is for {} heads, and a group has whole ones or lies within one",
        Range{first, end - 1}.text(), share);
  return {first, end - first, first_key, end_key - first_key, {}};
}

bool reads_rotated_query(const EncodingChoice::Part& part) {
  return std::ranges::any_of(list_options(*part.options), [](const OptionInfo& option) {
    return option.name == rotated_query_option && option.value == OptionValue(true);
  });
}

// Wide queries and keys are for the score only.
void check_widths(const Assignment& assignment, const std::vector<EncodingChoice::Part>& parts) {
  const auto wide = std::ranges::find_if(assignment.sum, [](const auto* entry) { return entry->traits.widens_heads; });
  if (wide == assignment.sum.end()) return;
  for (const EncodingChoice::Part& part : parts) {
    if (!contains(assignment.sum, part.entry)) continue;
    const bool by_flag = reads_rotated_query(part);
    check(!by_flag && !part.entry->traits.needs_head_width, "encoding",
          "{}: {} makes the rotated q and k wider than a head, but {}{} needs them as wide as a head; leave out {}",
          assignment.sum_text(), (*wide)->name, part.entry->name, by_flag ? " with rotated-query" : "",
          by_flag ? "rotated-query" : "one of the two");
  }
}

// Embeddings are changed once, before layer 0, and have no heads.
void check_embeds(const EncodingEntry& entry, const Assignment& assignment, const std::vector<Assignment>& all) {
  const bool from_the_start = std::any_of(all.begin(), all.end(), [&](const Assignment& other) {
    return other.layers.holds(0) && contains(other.sum, &entry);
  });
  check(assignment.heads.all() && from_the_start, "encoding",
        "{} acts on the embeddings, before layer 0 and for all heads: name it for all of layer 0 (0:{},...)",
        entry.name, entry.name);
}

// One of several encodings that act together on the same heads.
struct SumPart {
  std::string name;
  std::unique_ptr<Encoding> encoding;
};

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

// The traits of an encoding on the counting device, including the traits that follow from its Score.
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

}  // namespace

std::string EncodingChoice::Range::text() const {
  return first == last ? to_text(first) : formatted("{}-{}", first, last);
}

std::string EncodingChoice::Assignment::sum_text() const {
  std::string text;
  for (const EncodingEntry* entry : sum) text += formatted("{}{}", text.empty() ? "" : "+", entry->name);
  std::string brackets;
  for (const MaskField& field : mask_fields) {
    if (mask.*field.member > 0)
      brackets += formatted("{}{}={}", brackets.empty() ? "[" : ",", field.name, mask.*field.member);
  }
  return brackets.empty() ? text : text + brackets + "]";
}

std::string EncodingChoice::Assignment::text(const Range& before) const {
  return formatted("{}{}{}", layers == before ? "" : layers.text() + ":", sum_text(),
                   heads.all() ? "" : "@" + heads.text());
}

EncodingChoice EncodingChoice::parse(std::string_view text) {
  EncodingChoice choice;
  Range layers;
  for (std::string_view rest : split(text, ',')) {
    Assignment assignment;
    if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
      layers = parse_range(rest.substr(0, colon), "layers", text);
      rest.remove_prefix(colon + 1);
    }
    assignment.layers = layers;
    if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
      assignment.heads = parse_range(rest.substr(at + 1), "heads", text);
      rest = rest.substr(0, at);
    }
    if (const std::size_t open = rest.find('['); open != std::string_view::npos) {
      check(rest.back() == ']', "encoding",
            "'{}' in '{}' has a bracket that does not end it; write none[window=256], or none[window=256]@0-1 for some "
            "heads",
            rest, text);
      assignment.mask = parse_mask(rest.substr(open + 1, rest.size() - open - 2), text);
      rest = rest.substr(0, open);
    }
    for (const std::string_view name : split(rest, '+')) {
      check(!name.empty(), "encoding",
            "'{}' lacks a name; write one encoding, a sum (cope+rope), or what acts where (0:none,1-3:cope; "
            "cope@0-1,alibi@2-3)",
            text);
      const EncodingEntry& entry = find_encoding(name);
      check(!contains(assignment.sum, &entry), "encoding", "'{}' names {} twice", rest, name);
      assignment.sum.push_back(&entry);
      const bool known =
          std::any_of(choice.parts.begin(), choice.parts.end(), [&](const Part& part) { return part.entry == &entry; });
      if (!known) choice.parts.push_back({&entry, entry.make_options()});
    }
    std::sort(assignment.sum.begin(), assignment.sum.end(), by_name);
    choice.assignments.push_back(std::move(assignment));
  }
  std::sort(choice.parts.begin(), choice.parts.end(),
            [](const Part& a, const Part& b) { return by_name(a.entry, b.entry); });
  std::stable_sort(choice.assignments.begin(), choice.assignments.end(), [](const Assignment& a, const Assignment& b) {
    return std::tie(a.layers.first, a.layers.last, a.heads.first) <
           std::tie(b.layers.first, b.layers.last, b.heads.first);
  });
  const Assignment& first = choice.assignments.front();
  const bool everywhere = first.layers.all() && first.heads.all() && first.mask == AttentionMask{};
  if (choice.assignments.size() == 1 && everywhere) choice.assignments.clear();
  return choice;
}

EncodingChoice EncodingChoice::clone() const {
  EncodingChoice copy;
  for (const Part& part : parts) copy.parts.push_back({part.entry, part.options->clone()});
  copy.assignments = assignments;
  return copy;
}

std::vector<EncodingChoice::Assignment> EncodingChoice::acting() const {
  if (!assignments.empty()) return assignments;
  Assignment everywhere;
  for (const Part& part : parts) everywhere.sum.push_back(part.entry);
  return {everywhere};
}

std::string EncodingChoice::text() const {
  std::string text;
  Range layers;
  for (const Assignment& assignment : acting()) {
    text += (text.empty() ? "" : ",") + assignment.text(layers);
    layers = assignment.layers;
  }
  return text;
}

EncodingChoice encoding(std::string_view text,
                        std::initializer_list<std::pair<std::string_view, OptionValue>> options) {
  EncodingChoice choice = EncodingChoice::parse(text);
  for (const auto& [name, value] : options) choice.set_option(name, to_text(value));
  return choice;
}

void EncodingChoice::set_option(std::string_view name, std::string_view value) {
  if (const std::size_t dot = name.find('.'); dot != std::string_view::npos) {
    const std::string_view part_name = name.substr(0, dot);
    for (const Part& part : parts) {
      if (part.entry->name == part_name)
        return tally::set_option(*part.options, part_name, name.substr(dot + 1), value);
    }
    fail("encoding", "option {} is for '{}', which is not part of {}", name, part_name, text());
  }
  std::vector<const Part*> owners;
  std::vector<std::string> candidates, full_names;
  for (const Part& part : parts) {
    for (const OptionInfo& info : list_options(*part.options)) {
      candidates.push_back(info.name);
      if (info.name != name) continue;
      owners.push_back(&part);
      full_names.push_back(formatted("{}.{}", part.entry->name, name));
    }
  }
  check(owners.size() <= 1, "encoding", "option {} is ambiguous: write {}", name, joined(full_names, " or "));
  if (owners.empty()) fail(text(), "unknown option '{}'{}", name, did_you_mean_or_known(name, candidates));
  tally::set_option(*owners.front()->options, owners.front()->entry->name, name, value);
}

std::int64_t EncodingChoice::least_layers() const { return least_count(assignments, &Assignment::layers); }
std::int64_t EncodingChoice::least_heads() const { return least_count(assignments, &Assignment::heads); }

void EncodingChoice::check_covers(std::int64_t layers, std::int64_t heads, std::int64_t key_heads) const {
  const std::string named = formatted("'{}' names ", text());
  const auto check_exists = [&](std::string_view kind, std::int64_t last, std::int64_t count) {
    check(last < count, "encoding", "{}{} {}, but the model has {} {}{} (from 0)", named, kind, last, count, kind,
          count == 1 ? "" : "s");
  };
  check_exists("layer", least_layers() - 1, layers);
  check_exists("head", least_heads() - 1, heads);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::vector<Assignment> own = assignments_of(acting(), layer);
    check(!own.empty(), "encoding", "{}nothing for layer {}; write none where there is none", named, layer);
    std::int64_t next = 0;
    const auto check_reaches = [&](std::int64_t head) {
      check(next >= head, "encoding", "{}nothing for head{}{} of layer {}; write none where there is none", named,
            next == head - 1 ? " " : "s ", Range{next, head - 1}.text(), layer);
    };
    for (const Assignment& assignment : own) {
      check_reaches(assignment.heads.first);
      check(next == assignment.heads.first, "encoding", "{}head {} of layer {} twice", named, assignment.heads.first,
            layer);
      next = assignment.heads.all() ? heads : assignment.heads.last + 1;
      if (next <= heads) group_of(assignment.heads.first, next, heads, key_heads);
    }
    check_reaches(heads);
  }
}

LayerEncoding EncodingChoice::make(const EncodingSetup& setup) const {
  check(!parts.empty(), "encoding", "nothing is chosen");
  for (const Part& part : parts) {
    check_values(*part.options, part.entry->name);
    part.options->validate();
  }
  const std::vector<Assignment> own = assignments_of(acting(), setup.layer);
  LayerEncoding layer;
  for (const Assignment& assignment : own) {
    const std::int64_t end = assignment.heads.all() ? setup.heads : assignment.heads.last + 1;
    HeadGroup group = group_of(assignment.heads.first, end, setup.heads, setup.key_heads);
    EncodingSetup of_group = setup;
    of_group.heads = group.count;
    of_group.key_heads = group.key_count;
    const std::string name = assignment.text(Range{});
    check_widths(assignment, parts);
    const auto make_for = [&](EncodingSetup target) {
      std::vector<SumPart> made;
      const auto parameter = target.make_parameter;
      for (const Part& part : parts) {
        if (!contains(assignment.sum, part.entry)) continue;
        const bool single =
            std::ranges::count_if(own, [&](const Assignment& other) { return contains(other.sum, part.entry); }) == 1;
        target.first_layer = first_layer_of(acting(), part.entry);
        target.make_parameter = [&](std::string_view suffix, const Shape& shape, const Fill& fill, Scope scope) {
          const std::string heads = single || scope == Scope::model ? "" : "@" + assignment.heads.text();
          return parameter(formatted("{}{}.{}", part.entry->name, heads, suffix), shape, fill, scope);
        };
        made.push_back({part.entry->name, part.entry->make(target, *part.options)});
        made.back().encoding->traits = part.entry->traits;
        made.back().encoding->constants = target.constants;
      }
      if (made.size() == 1) return std::move(made.front().encoding);
      return std::unique_ptr<Encoding>(std::make_unique<Sum>(std::move(made), name));
    };
    const EncodingTraits traits = [&] {
      const meta::Uncounted no_part_of_the_run;
      const EncodingSetup counting = of_group.counting();
      return derived_traits(*make_for(counting), counting, name);
    }();
    group.encoding = make_for(of_group);
    group.encoding->traits = traits;
    group.encoding->constants = setup.constants;
    group.mask = assignment.mask;
    for (const EncodingEntry* entry : assignment.sum) {
      if (!assignments.empty() && entry->traits.embeds) check_embeds(*entry, assignment, assignments);
    }
    const AttentionMask& mask = group.mask;
    check(mask.is_causal_only() || !traits.mixes, "encoding",
          "{}: {} computes the whole attention and supports no attention mask", assignment.sum_text(),
          assignment.sum.front()->name);
    const bool own_key_only = mask.first == 0 && (mask.window == 1 || mask.chunk == 1);
    check(!own_key_only || !group.encoding->excludes_own_key(), "encoding",
          "{}: queries attend only to the key of their own token, to which this encoding gives no weight, so every "
          "weight is 0; a window or chunk must be at least 2 here, or first at least 1",
          assignment.sum_text());
    layer.push_back(std::move(group));
  }
  return layer;
}

std::vector<std::string> EncodingChoice::notes() const {
  std::vector<std::string> lines;
  const std::vector<Assignment> all = acting();
  for (const Part& part : parts) {
    const auto is_with = [&](bool EncodingTraits::*trait) {
      return std::ranges::any_of(all, [&](const Assignment& assignment) {
        return contains(assignment.sum, part.entry) &&
               std::ranges::any_of(assignment.sum, [&](const EncodingEntry* other) {
                 return other != part.entry && other->traits.*trait;
               });
      });
    };
    for (const OptionInfo& option : list_options(*part.options)) {
      const bool for_rotations = option.name == rotated_query_option;
      const bool for_scores = std::ranges::count(part.entry->score_flags, option.name) > 0;
      if (option.value != OptionValue(true) || !(for_rotations || for_scores)) continue;
      if (is_with(for_rotations ? &EncodingTraits::rotates : &EncodingTraits::scores)) continue;
      lines.push_back(formatted("note: {}.{}=true changes nothing: {} is not combined with {}", part.entry->name,
                                option.name, part.entry->name, for_rotations ? "a rotation" : "what changes scores"));
    }
  }
  return lines;
}

}  // namespace tally
