#include "tasks/foreign/rope_settings.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "nn/encoding/rotary.hpp"

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

// The stretching of positions, as read from an object. Lengths in tokens.
struct RopeStretch {
  std::string type;
  std::int64_t planes = 0;
  std::int64_t positions = 0;                 // max_position_embeddings
  std::optional<std::int64_t> original = {};  // original_max_position_embeddings, at either place
  bool inside = false;                        // only within rope_scaling or rope_parameters
  bool newer = false;                         // within rope_parameters

  std::int64_t trained() const { return original.value_or(positions); }
  double of_lengths() const { return static_cast<double>(positions) / static_cast<double>(trained()); }
};

double read_factor(ForeignSettings& scaling, std::optional<double> usual = {}) {
  const double factor = scaling.real("factor", usual);
  if (!(factor >= 1)) scaling.refuse("factor", "is {}; it is at least 1", factor);
  return factor;
}

// The option stays 0 if the file repeats the default of the method.
void set_attention_factor(ForeignSettings& scaling, double usual, ForeignModel& model) {
  const double factor = scaling.real("attention_factor", usual);
  if (!(factor > 0)) scaling.refuse("attention_factor", "is {}; it must be above 0", factor);
  if (std::abs(factor - usual) > 1e-12 * usual) model.set("pe.rope.attention-factor", factor);
}

// 0.1 m ln s + 1, as in the released code; the model's file may give m.
double yarn_attention_factor(double factor, double m = 1) { return 0.1 * m * std::log(factor) + 1; }

void read_yarn_attention(ForeignSettings& scaling, double factor, ForeignModel& model) {
  const double m = scaling.real("mscale", 0), all = scaling.real("mscale_all_dim", 0);
  double usual = yarn_attention_factor(factor);
  if (m != 0 && all != 0) {
    usual = yarn_attention_factor(factor, m) / yarn_attention_factor(factor, all);
    if (scaling.has("attention_factor") && std::abs(scaling.real("attention_factor") - usual) > 1e-6 * usual) {
      scaling.refuse("attention_factor", "= {} contradicts mscale = {} with mscale_all_dim = {}, by which it is {}",
                     scaling.real("attention_factor"), m, all, usual);
    }
    if (!scaling.has("attention_factor") && m != all) model.set("pe.rope.attention-factor", usual);
    if (!scaling.has("attention_factor") && m == all) model.set("pe.rope.attention-factor", 1.0);
    if (!scaling.has("attention_factor")) return;
  } else if ((m != 0 && m != 1) || all != 0) {
    scaling.refuse(
        m != 0 ? "mscale" : "mscale_all_dim",
        "has no agreed meaning without {}: readers differ; attention_factor says what cos and sin are multiplied by",
        m != 0 ? "mscale_all_dim" : "mscale");
  }
  set_attention_factor(scaling, yarn_attention_factor(factor), model);
}

// Sets a number. 0 stands for its default.
void set_beta(ForeignSettings& scaling, std::string_view key, std::string_view option, double usual,
              ForeignModel& model) {
  const double said = scaling.real(key, usual), beta = said == 0 ? usual : said;
  if (!(beta > 0)) scaling.refuse(key, "is {}; it must be above 0", beta);
  if (beta != usual) model.set(formatted("pe.rope.{}", option), beta);
}

// The model's length is the stretched length, or, in files that a user has edited, the trained length.
void read_yarn(ForeignSettings& settings, ForeignSettings& scaling, const RopeStretch& given, ForeignModel& model) {
  const double factor = read_factor(scaling, given.of_lengths());
  const double stretched = factor * static_cast<double>(given.trained());
  if (!given.original) {
    settings.note(
        formatted("yarn: original_max_position_embeddings is missing; the trained length is taken to be "
                  "max_position_embeddings = {}",
                  given.positions));
  } else if (factor > 1 && given.positions == *given.original) {
    settings.note(
        formatted("yarn: max_position_embeddings = {} is the trained length; some versions of transformers before 4.57 "
                  "take 1, the quotient of the lengths, for the factor {}",
                  given.positions, factor));
  } else if (std::abs(stretched - static_cast<double>(given.positions)) >= 1) {
    scaling.refuse("factor",
                   "= {} times original_max_position_embeddings = {} is {}, but max_position_embeddings is {}: "
                   "versions of transformers differ in which they take; make the three agree",
                   factor, *given.original, stretched, given.positions);
  }
  model.set("pe.rope.factor", factor);
  model.set("pe.rope.trained-length", given.trained());
  read_yarn_attention(scaling, factor, model);
  set_beta(scaling, "beta_fast", "beta-fast", 32, model);
  set_beta(scaling, "beta_slow", "beta-slow", 1, model);
  if (!scaling.flag("truncate", true)) model.set("pe.rope.truncate", false);
  // Names used by other readers. `finetuned` is only a note and changes no computation.
  for (const char* key : {"attn_factor", "extrapolation_factor"}) {
    if (scaling.real(key, 1) != 1) scaling.refuse(key, "= {} is not there in tally, which has 1", scaling.real(key));
  }
  scaling.pass_over({"finetuned"});
}

// sqrt(1 + ln s / ln L0): the factor that longrope applies to the lengths of q and k.
double longrope_factor(double factor, std::int64_t trained) {
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(trained)));
}

// A list of longrope as our option's text: "1/1.5/2".
std::string list_of(ForeignSettings& scaling, std::string_view key, std::int64_t planes) {
  const std::vector<double> numbers = scaling.reals(key);
  if (std::ssize(numbers) != planes) {
    scaling.refuse(key, "has {}{}, but {} dims are rotated; one is wanted for each two of them", numbers.size(),
                   numbers.size() == 1 ? " number" : " numbers", 2 * planes);
  }
  std::vector<std::string> texts;
  for (const double number : numbers) {
    if (!(number > 0)) scaling.refuse(key, "holds {}; its numbers must be above 0", number);
    texts.push_back(to_text(number));
  }
  return joined(texts, "/");
}

// The default factor is the quotient of the lengths. Some versions always use this quotient if the trained length is
// outside of rope_scaling and there is no attention factor; with an attention factor all agree. These versions look for
// the length only outside.
void read_longrope(ForeignSettings& settings, ForeignSettings& scaling, const RopeStretch& given, ForeignModel& model) {
  const double factor = read_factor(scaling, given.of_lengths());
  const bool contradicts = factor != given.of_lengths() && !scaling.has("attention_factor");
  if (contradicts && !(given.newer && given.inside)) {
    scaling.refuse("factor",
                   "= {} is not max_position_embeddings / original_max_position_embeddings = {}, and versions of "
                   "transformers differ in which they take; attention_factor decides",
                   factor, given.of_lengths());
  }
  if (given.trained() < 2) {
    scaling.refuse("original_max_position_embeddings", "= 1 is too short: longrope divides by its logarithm");
  }
  if (given.inside && !given.newer) {
    settings.note(
        formatted("longrope: original_max_position_embeddings = {} is within rope_scaling; versions of transformers "
                  "before 5 look for it outside, and would take {}",
                  given.trained(), given.positions));
  }
  model.set("pe.rope.factor", factor);
  model.set("pe.rope.trained-length", given.trained());
  model.set("pe.rope.short-factors", list_of(scaling, "short_factor", given.planes));
  model.set("pe.rope.long-factors", list_of(scaling, "long_factor", given.planes));
  set_attention_factor(scaling, longrope_factor(factor, given.trained()), model);
}

void read_llama3(ForeignSettings& settings, ForeignSettings& scaling, const RopeStretch& given, ForeignModel& model) {
  if (!given.original) {
    settings.note(
        formatted("llama3: original_max_position_embeddings is missing; the trained length is taken to be "
                  "max_position_embeddings = {}",
                  given.positions));
  }
  model.set("pe.rope.factor", read_factor(scaling));
  model.set("pe.rope.trained-length", given.trained());
  model.set("pe.rope.low-freq-factor", scaling.real("low_freq_factor"));
  model.set("pe.rope.high-freq-factor", scaling.real("high_freq_factor"));
}

// Stretches texts of more than max_position_embeddings tokens.
void read_dynamic(ForeignSettings& scaling, const RopeStretch& given, ForeignModel& model) {
  if (given.original && *given.original != given.positions) {
    scaling.refuse(
        "original_max_position_embeddings",
        "= {} contradicts max_position_embeddings = {}, from which on texts are stretched with the type dynamic",
        *given.original, given.positions);
  }
  model.set("pe.rope.factor", read_factor(scaling));
  model.set("pe.rope.trained-length", given.positions);
}

void read_stretch(ForeignSettings& settings, ForeignSettings& scaling, const RopeStretch& given, ForeignModel& model) {
  if (given.type == "default") {
    if (scaling.has("factor") && scaling.real("factor") != 1) {
      scaling.refuse("factor", "= {} says by how much positions are stretched, but rope_type does not say how",
                     scaling.real("factor"));
    }
    scaling.pass_over({"factor"});
    return;
  }
  model.set("pe.rope.stretch", given.type == "linear" ? "pi" : given.type);
  if (given.type == "linear") {
    model.set("pe.rope.factor", read_factor(scaling));
  } else if (given.type == "dynamic") {
    read_dynamic(scaling, given, model);
  } else if (given.original && *given.original > given.positions) {
    scaling.refuse("original_max_position_embeddings", "= {} is more than max_position_embeddings = {}",
                   *given.original, given.positions);
  } else if (given.type == "yarn") {
    read_yarn(settings, scaling, given, model);
  } else if (given.type == "llama3") {
    read_llama3(settings, scaling, given, model);
  } else if (given.type == "longrope") {
    read_longrope(settings, scaling, given, model);
  } else {
    scaling.refuse(scaling.has("rope_type") ? "rope_type" : "type",
                   "= '{}' is not there in tally; it has default, linear, dynamic, yarn, llama3 and longrope",
                   escape_for_print(given.type, 60));
  }
}

// One factor for each plane; 1 if the option is empty.
JsonValue factors_json(OwnSettings& settings, std::string_view option, std::int64_t planes) {
  JsonValue list = JsonValue::array();
  std::vector<double> factors = plane_factors("rope", option, settings.text(formatted("pe.rope.{}", option)));
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
    fail("import",
         "{}: of heads of width {} a part of {} is to be rotated, which is {} dims; an even number from 2 on is wanted",
         settings.source(), defaults.head_width, fraction, dims);
  }
  if (defaults.fraction == 1 && fraction != 1) {
    settings.refuse("partial_rotary_factor", "= {} is not what these models have, which rotate whole heads", fraction);
  }
  if (dims < static_cast<double>(defaults.head_width))
    model.set("pe.rope.rotary-dims", static_cast<std::int64_t>(dims));

  const std::string type = scaling.has("rope_type") ? scaling.text("rope_type") : scaling.text("type", "default");
  if (scaling.text("type", type) != type) scaling.refuse("type", "contradicts rope_type");
  constexpr std::string_view original = "original_max_position_embeddings";
  RopeStretch given{.type = type, .planes = static_cast<std::int64_t>(dims) / 2, .positions = defaults.positions};
  given.newer = newer;
  given.inside = scaling.has(original) && !settings.has(original);
  if (settings.has(original)) given.original = settings.count(original);
  if (scaling.has(original)) {
    const std::int64_t within = scaling.count(original);
    if (given.original && *given.original != within) {
      scaling.refuse(original, "= {} contradicts the same key outside, which says {}", within, *given.original);
    }
    given.original = within;
  }
  read_stretch(settings, scaling, given, model);
  scaling.idle_members();
}

std::int64_t rotary_dims_of(OwnSettings& settings, std::int64_t head_width) {
  const std::int64_t dims = settings.integer("pe.rope.rotary-dims");
  return dims > 0 ? dims : head_width;
}

void write_rope_scaling(OwnSettings& settings, std::int64_t dims, JsonValue& json) {
  settings.one_of("pe.rope.layout", {"half"});
  const std::string stretch =
      settings.one_of("pe.rope.stretch", {"none", "pi", "dynamic", "yarn", "llama3", "longrope"});
  if (stretch == "none") return void(json.set("rope_scaling", {}));
  const std::string type = stretch == "pi" ? "linear" : stretch;
  const double factor = settings.real("pe.rope.factor");
  JsonValue scaling = JsonValue::object({{"rope_type", type}, {"type", type}, {"factor", factor}});
  if (stretch == "pi") return void(json.set("rope_scaling", std::move(scaling)));
  const std::int64_t trained = settings.integer("pe.rope.trained-length");
  const std::string_view positions = "max_position_embeddings", original = "original_max_position_embeddings";
  if (stretch == "dynamic") {
    json.set(positions, trained);
    return void(json.set("rope_scaling", std::move(scaling)));
  }
  scaling.set(original, trained);
  if (stretch == "llama3") {
    scaling.set("low_freq_factor", settings.real("pe.rope.low-freq-factor"));
    scaling.set("high_freq_factor", settings.real("pe.rope.high-freq-factor"));
    return void(json.set("rope_scaling", std::move(scaling)));
  }
  // Versions that use the quotient of the lengths as the factor need it here.
  const double stretched = factor * static_cast<double>(trained), whole = std::round(stretched);
  json.set(positions, static_cast<std::int64_t>(whole));
  if (whole != stretched) {
    settings.note(
        formatted("{}: {} times {} is no whole number of positions; versions of transformers that take "
                  "max_position_embeddings / {} for the factor read {}",
                  type, factor, trained, original, whole / static_cast<double>(trained)));
  }
  const double attention = settings.real("pe.rope.attention-factor");
  const double usual = stretch == "yarn" ? yarn_attention_factor(factor) : longrope_factor(factor, trained);
  scaling.set("attention_factor", attention > 0 ? attention : usual);
  if (stretch == "yarn") {
    scaling.set("beta_fast", settings.real("pe.rope.beta-fast"));
    scaling.set("beta_slow", settings.real("pe.rope.beta-slow"));
    if (!settings.flag("pe.rope.truncate")) scaling.set("truncate", false);
  } else {
    scaling.set("short_factor", factors_json(settings, "short-factors", dims / 2));
    scaling.set("long_factor", factors_json(settings, "long-factors", dims / 2));
    json.set(original, trained);  // older versions look for it here
  }
  json.set("rope_scaling", std::move(scaling));
}

}  // namespace tally
