#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "nn/encoding/rotary.hpp"
#include "tasks/foreign/family.hpp"

namespace tally {
namespace {

// Reads a number that may be given under several names. All given values must agree.
double agreed(ForeignSettings& settings, ForeignSettings& inner, std::initializer_list<std::string_view> outer_names,
              std::string_view inner_name, double usual) {
  std::optional<double> value;
  if (inner.has(inner_name)) value = inner.real(inner_name);
  for (const std::string_view name : outer_names) {
    if (!settings.has(name)) continue;
    const double said = settings.real(name);
    if (value && *value != said) settings.refuse(name, "= {} contradicts another key, which says {}", said, *value);
    value = said;
  }
  return value.value_or(usual);
}

constexpr std::string_view original_key = "original_max_position_embeddings";

constexpr std::string_view stretched_types[] = {"linear", "dynamic", "yarn", "llama3"};

// Lengths in tokens, as read from a file.
struct RopeLengths {
  std::int64_t positions = 0;                 // max_position_embeddings
  std::optional<std::int64_t> original = {};  // original_max_position_embeddings, at either place

  std::int64_t trained() const { return original.value_or(positions); }
  double quotient() const { return static_cast<double>(positions) / static_cast<double>(trained()); }
};

// 0.1 ln s + 1, as in the released code.
double yarn_attention_factor(double factor) { return 0.1 * std::log(factor) + 1; }

// The model's length is the stretched length, or, in files that a user has edited, the trained length.
void read_yarn(ForeignSettings& scaling, double factor, const RopeLengths& lengths, ForeignModel& model) {
  const double stretched = factor * static_cast<double>(lengths.trained());
  if (lengths.original && lengths.positions != *lengths.original &&
      std::abs(stretched - static_cast<double>(lengths.positions)) >= 1) {
    scaling.refuse("factor",
                   "= {} times original_max_position_embeddings = {} is {}, but max_position_embeddings is {}: "
                   "versions of transformers differ in which they take; make the three agree",
                   factor, *lengths.original, stretched, lengths.positions);
  }
  // The option stays 0 if the file repeats the default of the method.
  const double usual = yarn_attention_factor(factor), attention = scaling.positive("attention_factor", usual);
  if (std::abs(attention - usual) > 1e-12 * usual) model.set("pe.rope.attention-factor", attention);
  for (const auto& [key, option, usual_beta] :
       {std::tuple{"beta_fast", "pe.rope.beta-fast", 32.0}, {"beta_slow", "pe.rope.beta-slow", 1.0}}) {
    if (scaling.real(key, usual_beta) == 0) continue;  // 0 stands for the default
    if (const double beta = scaling.positive(key, usual_beta); beta != usual_beta) model.set(option, beta);
  }
  if (!scaling.flag("truncate", true)) model.set("pe.rope.truncate", false);
  scaling.pass_over({"finetuned"});  // a note that changes no computation
}

}  // namespace

void read_rope(ForeignSettings& settings, const RopeDefaults& defaults, ForeignModel& model) {
  const bool newer = settings.has("rope_parameters");
  if (newer && settings.has("rope_scaling")) {
    settings.refuse("rope_scaling", "stands beside rope_parameters; one of them is to say it");
  }
  settings.pass_over({"rope_parameters", "rope_scaling"});
  ForeignSettings scaling = settings.child(newer ? "rope_parameters" : "rope_scaling");
  model.set("pe.rope.base", agreed(settings, scaling, {"rope_theta", "rotary_emb_base"}, "rope_theta", 10000));

  const double fraction =
      agreed(settings, scaling, {"rotary_pct", "partial_rotary_factor"}, "partial_rotary_factor", defaults.fraction);
  const double dims = std::floor(static_cast<double>(defaults.head_width) * fraction);
  if (!(fraction > 0 && fraction <= 1 && dims >= 2 && std::fmod(dims, 2) == 0)) {
    fail("import",
         "{}: of heads of width {} a part of {} is to be rotated, which is {} dims; an even number from 2 on is wanted",
         settings.source(), defaults.head_width, fraction, dims);
  }
  if (defaults.fraction == 1 && fraction != 1) {
    settings.refuse("partial_rotary_factor", "= {} is not what these models have, which rotate whole heads", fraction);
  }
  const std::int64_t planes = static_cast<std::int64_t>(dims) / 2;
  if (2 * planes < defaults.head_width) model.set("pe.rope.rotary-dims", 2 * planes);

  const std::string type = scaling.has("rope_type") ? scaling.text("rope_type") : scaling.text("type", "default");
  if (scaling.text("type", type) != type) scaling.refuse("type", "contradicts rope_type");
  RopeLengths lengths{.positions = defaults.positions};
  if (settings.has(original_key)) lengths.original = settings.count(original_key);
  if (scaling.has(original_key)) {
    const std::int64_t within = scaling.count(original_key);
    if (lengths.original.value_or(within) != within) {
      scaling.refuse(original_key, "= {} contradicts the same key outside, which says {}", within, *lengths.original);
    }
    lengths.original = within;
  }
  if (type == "default") {
    if (scaling.real("factor", 1) != 1) {
      scaling.refuse("factor", "= {} says by how much positions are stretched, but rope_type does not say how",
                     scaling.real("factor"));
    }
    scaling.refuse_unread();
    return;
  }
  if (std::ranges::find(stretched_types, type) == std::end(stretched_types)) {
    scaling.refuse(scaling.has("rope_type") ? "rope_type" : "type",
                   "= '{}' is not there in tally; it has default, linear, dynamic, yarn and llama3",
                   escape_for_print(type, 60));
  }
  const double factor = scaling.real("factor", type == "yarn" ? std::optional(lengths.quotient()) : std::nullopt);
  if (type != "linear" && type != "dynamic" && lengths.trained() > lengths.positions) {
    scaling.refuse(original_key, "= {} is more than max_position_embeddings = {}", lengths.trained(),
                   lengths.positions);
  }
  if (!(factor >= 1)) scaling.refuse("factor", "is {}; it is at least 1", factor);
  if (type == "dynamic" && lengths.trained() != lengths.positions) {
    scaling.refuse(original_key,
                   "= {} contradicts max_position_embeddings = {}, from which on texts are stretched with the type "
                   "dynamic",
                   *lengths.original, lengths.positions);
  }
  if (!lengths.original && (type == "yarn" || type == "llama3")) {
    settings.note(
        formatted("{}: original_max_position_embeddings is missing; the trained length is taken to be "
                  "max_position_embeddings = {}",
                  type, lengths.positions));
  }
  model.set("pe.rope.stretch", type == "linear" ? "pi" : type);
  model.set("pe.rope.factor", factor);
  if (type != "linear") model.set("pe.rope.trained-length", lengths.trained());
  if (type == "yarn") read_yarn(scaling, factor, lengths, model);
  if (type == "llama3") {
    model.set("pe.rope.low-freq-factor", scaling.real("low_freq_factor"));
    model.set("pe.rope.high-freq-factor", scaling.real("high_freq_factor"));
  }
  scaling.refuse_unread();
}

std::int64_t rotary_dims_of(OwnSettings& settings, std::int64_t head_width) {
  const std::int64_t dims = settings.integer("pe.rope.rotary-dims");
  return dims > 0 ? dims : head_width;
}

void write_rope_scaling(OwnSettings& settings, JsonValue& json) {
  settings.one_of("pe.rope.layout", {"half"});
  const std::string stretch = settings.one_of("pe.rope.stretch", {"none", "pi", "dynamic", "yarn", "llama3"});
  if (stretch == "none") return void(json.set("rope_scaling", {}));
  const std::string type = stretch == "pi" ? "linear" : stretch;
  const double factor = settings.real("pe.rope.factor");
  JsonValue scaling = JsonValue::object({{"rope_type", type}, {"type", type}, {"factor", factor}});
  const std::int64_t trained = stretch == "pi" ? 0 : settings.integer("pe.rope.trained-length");
  constexpr std::string_view positions_key = "max_position_embeddings";
  if (stretch == "dynamic") json.set(positions_key, trained);
  if (stretch != "pi" && stretch != "dynamic") scaling.set(original_key, trained);
  if (stretch == "llama3") {
    scaling.set("low_freq_factor", settings.real("pe.rope.low-freq-factor"));
    scaling.set("high_freq_factor", settings.real("pe.rope.high-freq-factor"));
  }
  if (stretch == "yarn") {
    // Versions that use the quotient of the lengths as the factor need it here.
    json.set(positions_key, std::llround(factor * static_cast<double>(trained)));
    const double attention = settings.real("pe.rope.attention-factor");
    scaling.set("attention_factor", attention > 0 ? attention : yarn_attention_factor(factor));
    scaling.set("beta_fast", settings.real("pe.rope.beta-fast"));
    scaling.set("beta_slow", settings.real("pe.rope.beta-slow"));
    if (!settings.flag("pe.rope.truncate")) scaling.set("truncate", false);
  }
  json.set("rope_scaling", std::move(scaling));
}

}  // namespace tally
