#include "tasks/foreign/rope_settings.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "nn/rotary.hpp"

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

struct LongRope {
  std::int64_t planes = 0, positions = 0, trained = 0;
};

// sqrt(1 + ln s / ln L0): by how much longrope lengthens q and k.
double longrope_factor(double factor, std::int64_t trained) {
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(trained)));
}

// A list of longrope as the option of ours has it: "1/1.5/2".
std::string list_of(ForeignSettings& scaling, std::string_view key, std::int64_t planes) {
  const std::vector<double> numbers = scaling.reals(key);
  if (std::ssize(numbers) != planes) {
    scaling.refuse(key, "has ", numbers.size(), numbers.size() == 1 ? " number" : " numbers", ", but ", 2 * planes,
                   " dims are rotated; one is wanted for each two of them");
  }
  std::vector<std::string> texts;
  for (const double number : numbers) {
    if (!(number > 0)) scaling.refuse(key, "holds ", number, "; its numbers must be above 0");
    texts.push_back(to_text(number));
  }
  return joined(texts, "/");
}

// Without a factor it is that of the lengths. Some versions take that in any case where the length trained on stands
// outside of rope_scaling, unless the attention's factor is there: then all agree.
void read_longrope(ForeignSettings& settings, ForeignSettings& scaling, const LongRope& given, ForeignModel& model) {
  const double of_lengths = static_cast<double>(given.positions) / static_cast<double>(given.trained);
  const double factor = scaling.real("factor", of_lengths);
  if (!(factor >= 1)) scaling.refuse("factor", "is ", factor, "; it is at least 1");
  const bool outside = settings.has("original_max_position_embeddings");
  if (outside && factor != of_lengths && !scaling.has("attention_factor")) {
    scaling.refuse("factor", "= ", factor,
                   " is not max_position_embeddings / original_max_position_embeddings = ", of_lengths,
                   ", and versions of transformers differ in which they take; attention_factor decides");
  }
  if (given.trained < 2) {
    scaling.refuse("original_max_position_embeddings", "= 1 is too short: longrope divides by its logarithm");
  }
  demand_number(scaling, "attention_factor", longrope_factor(factor, given.trained));
  model.set("pe.rope.stretch", "longrope");
  model.set("pe.rope.factor", factor);
  model.set("pe.rope.trained-length", given.trained);
  model.set("pe.rope.short-factors", list_of(scaling, "short_factor", given.planes));
  model.set("pe.rope.long-factors", list_of(scaling, "long_factor", given.planes));
}

// One for each plane; 1 where the option is empty.
JsonValue factors_json(OwnSettings& settings, std::string_view option, std::int64_t planes) {
  JsonValue list = JsonValue::array();
  std::vector<double> factors = plane_factors("rope", option, settings.text(concat("pe.rope.", option)));
  if (factors.empty()) factors.assign(static_cast<std::size_t>(planes), 1.0);
  for (const double factor : factors) list.push(factor);
  return list;
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
  const std::int64_t outer = settings.count("original_max_position_embeddings", defaults.positions);
  const std::int64_t trained = scaling.count("original_max_position_embeddings", outer);
  if (settings.has("original_max_position_embeddings") && trained != outer) {
    scaling.refuse("original_max_position_embeddings", "= ", trained, " contradicts the same key outside, which says ",
                   outer);
  }
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
  } else if (type == "longrope") {
    const auto planes = static_cast<std::int64_t>(dims) / 2;
    read_longrope(settings, scaling, {.planes = planes, .positions = defaults.positions, .trained = trained}, model);
  } else if (type != "default") {
    scaling.refuse(scaling.has("rope_type") ? "rope_type" : "type", "= '", escape_for_print(type, 60),
                   "' is not there in tally; it has default, linear, yarn, llama3 and longrope");
  }
  scaling.refuse_unread();
}

std::int64_t rotary_dims_of(OwnSettings& settings, std::int64_t head_width) {
  const std::int64_t dims = settings.integer("pe.rope.rotary-dims");
  return dims > 0 ? dims : head_width;
}

void write_rope_scaling(OwnSettings& settings, std::int64_t dims, JsonValue& json) {
  settings.one_of("pe.rope.layout", {"half"});
  const std::string stretch = settings.one_of("pe.rope.stretch", {"none", "pi", "yarn", "llama3", "longrope"});
  if (stretch == "none") return void(json.set("rope_scaling", {}));
  const double factor = settings.real("pe.rope.factor");
  JsonValue scaling = JsonValue::object({{"rope_type", stretch == "pi" ? "linear" : stretch}, {"factor", factor}});
  const std::int64_t trained = stretch == "pi" ? 0 : settings.integer("pe.rope.trained-length");
  if (stretch != "pi") scaling.set("original_max_position_embeddings", trained);
  if (stretch == "llama3") {
    scaling.set("low_freq_factor", settings.real("pe.rope.low-freq-factor"));
    scaling.set("high_freq_factor", settings.real("pe.rope.high-freq-factor"));
  }
  if (stretch == "longrope") {
    scaling.set("attention_factor", longrope_factor(factor, trained));
    scaling.set("short_factor", factors_json(settings, "short-factors", dims / 2));
    scaling.set("long_factor", factors_json(settings, "long-factors", dims / 2));
    json.set("original_max_position_embeddings", trained);  // where older versions look for it
  }
  json.set("rope_scaling", std::move(scaling));
}

}  // namespace tally
