#include "tasks/foreign/rope_settings.hpp"

#include <cmath>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

// One number under several names, all of which must say the same.
double agreed(ForeignSettings& settings, ForeignSettings& inner, std::initializer_list<std::string_view> outer_names,
              std::string_view inner_name, double usual) {
  std::optional<double> value;
  if (inner.has(inner_name)) value = inner.real(inner_name);
  for (const std::string_view name : outer_names) {
    if (!settings.has(name)) continue;
    const double said = settings.real(name);
    if (value && *value != said) settings.refuse(name, "= ", said, " contradicts another key, which says ", *value);
    value = said;
  }
  return value.value_or(usual);
}

void demand_number(ForeignSettings& scaling, std::string_view key, double wanted) {
  const double value = scaling.real(key, wanted);
  if (std::abs(value - wanted) > 1e-6 * std::abs(wanted)) {
    scaling.refuse(key, "= ", value, " is not there in tally, which has ", wanted);
  }
}

void read_yarn(ForeignSettings& scaling, double factor) {
  const bool both = scaling.real("mscale", 0) != 0 && scaling.real("mscale_all_dim", 0) != 0;
  if (both && !scaling.has("attention_factor")) {
    scaling.refuse("mscale", "beside mscale_all_dim is not there in tally, which multiplies by 0.1 ln(factor) + 1");
  }
  demand_number(scaling, "attention_factor", 0.1 * std::log(factor) + 1);
  demand_number(scaling, "beta_fast", 32);
  demand_number(scaling, "beta_slow", 1);
  scaling.demand("truncate", true, true);
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
    fail("import", settings.source(), ": of heads of width ", defaults.head_width, " a part of ", fraction,
         " is to be rotated, which is ", dims, " dims; an even number from 2 on is wanted");
  }
  if (defaults.fraction == 1 && fraction != 1) {
    settings.refuse("partial_rotary_factor", "= ", fraction,
                    " is not what these models have, which rotate whole heads");
  }
  if (dims < static_cast<double>(defaults.head_width))
    model.set("pe.rope.rotary-dims", static_cast<std::int64_t>(dims));

  const std::string type = scaling.has("rope_type") ? scaling.text("rope_type") : scaling.text("type", "default");
  if (scaling.text("type", type) != type) scaling.refuse("type", "contradicts rope_type");
  const std::int64_t trained = scaling.count("original_max_position_embeddings",
                                             settings.count("original_max_position_embeddings", defaults.positions));
  if (type == "linear" || type == "yarn" || type == "llama3") {
    std::optional<double> usual;
    if (type == "yarn") usual = static_cast<double>(defaults.positions) / static_cast<double>(trained);
    const double factor = scaling.real("factor", usual);
    if (!(factor >= 1)) scaling.refuse("factor", "is ", factor, "; it is at least 1");
    model.set("pe.rope.stretch", type == "linear" ? "pi" : type);
    model.set("pe.rope.factor", factor);
    if (type != "linear") model.set("pe.rope.trained-length", trained);
    if (type == "yarn") read_yarn(scaling, factor);
    if (type == "llama3") {
      model.set("pe.rope.low-freq-factor", scaling.real("low_freq_factor"));
      model.set("pe.rope.high-freq-factor", scaling.real("high_freq_factor"));
    }
  } else if (type != "default") {
    scaling.refuse(scaling.has("rope_type") ? "rope_type" : "type", "= '", escape_for_print(type, 60),
                   "' is not there in tally; it has default, linear, yarn and llama3");
  }
  scaling.refuse_unread();
}

std::int64_t rotary_dims_of(OwnSettings& settings, std::int64_t head_width) {
  const std::int64_t dims = settings.integer("pe.rope.rotary-dims");
  return dims > 0 ? dims : head_width;
}

void write_rope_scaling(OwnSettings& settings, JsonValue& json) {
  settings.one_of("pe.rope.layout", {"half"});
  const std::string stretch = settings.one_of("pe.rope.stretch", {"none", "pi", "yarn", "llama3"});
  if (stretch == "none") return void(json.set("rope_scaling", {}));
  JsonValue scaling = JsonValue::object(
      {{"rope_type", stretch == "pi" ? "linear" : stretch}, {"factor", settings.real("pe.rope.factor")}});
  if (stretch != "pi") scaling.set("original_max_position_embeddings", settings.integer("pe.rope.trained-length"));
  if (stretch == "llama3") {
    scaling.set("low_freq_factor", settings.real("pe.rope.low-freq-factor"));
    scaling.set("high_freq_factor", settings.real("pe.rope.high-freq-factor"));
  }
  json.set("rope_scaling", std::move(scaling));
}

}  // namespace tally
