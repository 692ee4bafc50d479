// What there is to say of a choice of encodings: what publications leave open, options that change nothing in these
// sums, and what encodings have to say of the model.
#include <algorithm>
#include <memory>
#include <optional>

#include "core/error.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/model.hpp"

namespace tally {
namespace {

// Whether some sum has both.
bool act_together(const EncodingChoice& choice, const EncodingEntry* one, const EncodingEntry* other) {
  const std::vector<EncodingChoice::Assignment> all = choice.acting();
  return std::ranges::any_of(all, [&](const EncodingChoice::Assignment& assignment) {
    return std::ranges::count(assignment.sum, one) > 0 && std::ranges::count(assignment.sum, other) > 0;
  });
}

// "rope+xpos": the rotations that act together with this part somewhere.
std::string rotations_beside(const EncodingChoice& choice, const EncodingEntry* entry) {
  std::string rotations;
  for (const EncodingChoice::Part& other : choice.parts) {
    const bool beside = other.entry != entry && act_together(choice, entry, other.entry);
    if (beside && other.entry->traits.rotates) rotations += concat(rotations.empty() ? "" : "+", other.entry->name);
  }
  return rotations;
}

// None where there is no such option.
std::optional<OptionValue> value_of(Options& options, std::string_view name) {
  for (const OptionInfo& option : list_options(options)) {
    if (option.name == name) return option.value;
  }
  return std::nullopt;
}

// Whether the other options leave this flag something to act on.
bool may_be_set(const EncodingChoice::Part& part, std::string_view flag) {
  const std::unique_ptr<Options> options = part.options->clone();
  set_option(*options, part.entry->name, flag, "true");
  try {
    options->validate();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool EncodingChoice::Part::joins_score() const {
  if (!entry->traits.scores) return false;
  if (entry->joins_score != nullptr) return entry->joins_score(*options);
  return entry->traits.scans || !entry->traits.normalises;
}

std::vector<std::string> EncodingChoice::open_choices() const {
  std::vector<std::string> lines;
  for (const Part& part : parts) {
    const std::string rotations = rotations_beside(*this, part.entry);
    if (rotations.empty()) continue;
    for (const OpenFlag& flag : part.entry->beside_rotations) {
      const std::string& name = part.entry->name;
      if (!may_be_set(part, flag.option)) continue;
      const bool is_set = value_of(*part.options, flag.option) == OptionValue(true);
      lines.push_back(concat("open choice: beside ", rotations, ", ", name, is_set ? flag.with : flag.without, " (",
                             name, ".", flag.option, "=", to_text(OptionValue(is_set)), "); publications do not say"));
    }
  }
  return lines;
}

std::vector<std::string> EncodingChoice::notes(const ModelOptions& model) const {
  std::vector<std::string> lines = open_choices();
  for (const Part& part : parts) {
    const std::string& name = part.entry->name;
    const auto say_idle = [&](std::string_view flag, bool acts, std::string_view what) {
      if (acts || value_of(*part.options, flag) != OptionValue(true)) return;
      lines.push_back(concat("note: ", name, ".", flag, "=true changes nothing: ", what, " beside ", name));
    };
    const auto joined = [&] {
      return std::ranges::any_of(parts, [&](const Part& other) {
        return other.entry != part.entry && act_together(*this, part.entry, other.entry) && other.joins_score();
      });
    };
    for (const OpenFlag& flag : part.entry->beside_rotations) {
      say_idle(flag.option, !rotations_beside(*this, part.entry).empty(), "no rotation acts");
    }
    for (const std::string_view flag : part.entry->beside_scores) say_idle(flag, joined(), "nothing joins the score");
    const std::string text = part.entry->note != nullptr ? part.entry->note(model) : "";
    if (!text.empty()) lines.push_back("note: " + text);
    const EncodingTraits::Doubt& doubt = part.entry->traits.doubtful_beside;
    for (const Part& other : parts) {
      const bool doubtful = other.entry->name == doubt.other && act_together(*this, part.entry, other.entry);
      if (doubtful) lines.push_back(concat("note: ", doubt.why));
    }
  }
  return lines;
}

}  // namespace tally
