// tally check: what an author must know of an encoding, in a minute: gradients, causality and all else that tally
// promises of every encoding, and what it costs.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "tasks/encoding_check.hpp"
#include "tasks/runner/commands.hpp"

namespace tally {
namespace {

const char* name_of(Finding::Kind kind) {
  return kind == Finding::Kind::good ? "ok" : kind == Finding::Kind::wrong ? "WRONG" : "-";
}

// Of all variants: the first that is wrong, else what the first one has to say.
JsonValue run_property(const EncodingProperty& property, const std::vector<EncodingVariant>& variants,
                       const CommonOptions& common) {
  Finding shown;
  std::string where;
  std::int64_t looked = 0, wrong = 0;
  for (std::size_t n = 0; n < variants.size(); ++n) {
    if (!property.of_each_variant && n > 0 && n + 1 < variants.size()) continue;
    const Finding found = look_at(property, variants[n]);
    ++looked;
    if (n == 0) shown = found;
    if (found.kind != Finding::Kind::wrong) continue;
    if (wrong++ == 0) {
      shown = found;
      where = variants[n].label;
    }
  }
  char begin[64];
  std::snprintf(begin, sizeof begin, "%-11s %-6s", property.name.c_str(), name_of(shown.kind));
  std::string text = concat(begin, shown.text);
  if (looked > 1) {
    text += wrong > 0 ? concat("\n", std::string(18, ' '), wrong, " of ", looked, " variants, the first: ", where)
                      : concat(" (", looked, " variants)");
  }
  if (wrong > 0) {
    tell(common, text);
  } else {
    say(common, text);
  }
  return JsonValue::object({{"property", property.name},
                            {"promise", property.promise},
                            {"found", name_of(shown.kind)},
                            {"text", shown.text},
                            {"variant", where},
                            {"variants", looked},
                            {"wrong", wrong}});
}

std::string cost_text(const JsonValue& cost, const char* name, const char* of) {
  char text[160];
  const JsonValue& own = cost.at(name);
  std::snprintf(text, sizeof text, "%-11s %-6s%.2f of none's time, %.2f of its memory: %s, %s\n", name, "",
                own.real("time"), own.real("memory"), of, cost.string("form").c_str());
  return text;
}

Result run_check(const std::string& wanted, bool costs, const CommonOptions& common) {
  const std::vector<EncodingVariant> variants = as_usage([&] { return variants_of(EncodingChoice::parse(wanted)); });
  JsonValue found = JsonValue::array();
  std::int64_t wrong = 0;
  for (const EncodingProperty& property : encoding_properties()) {
    JsonValue one = run_property(property, variants, common);
    wrong += one.integer("wrong") > 0;
    found.push(std::move(one));
  }
  Result result{.code = wrong > 0 ? exit_code::failed : exit_code::done,
                .value = JsonValue::object({{"pe", wanted}, {"wrong", wrong}, {"properties", std::move(found)}}),
                .text = wrong > 0 ? concat(wrong, wrong == 1 ? " promise is" : " promises are", " not kept\n")
                                  : "all promises are kept\n",
                .notice = true};
  if (costs) {
    result.notice = false;
    try {
      const JsonValue cost = cost_beside_none(EncodingChoice::parse(wanted));
      result.text += cost_text(cost, "step", "a step of flip-flop's quick preset") +
                     cost_text(cost, "attention", "one layer over 2048 tokens");
      result.value.set("cost", cost);
    } catch (const Error& error) {  // what was found stays
      result.text += concat("costs were not measured: ", error.what(), "\n");
      result.value.set("cost", JsonValue::object({{"error", error.what()}}));
    }
  }
  if (wrong > 0) complain(concat("[check] ", wanted, " does not keep ", wrong, wrong == 1 ? " promise" : " promises"));
  return result;
}

}  // namespace

std::function<Result()> declare_check(CommandLine& line) {
  const auto encoding = std::make_shared<std::string>();
  const auto no_costs = std::make_shared<bool>(false);
  line.add("--pe", encoding.get(), "an encoding, a sum, or what acts where (as in 'tally train')", {.required = true});
  line.add("--no-costs", no_costs.get(), "leave out time and memory beside none");
  return [encoding, no_costs, &common = line.common] { return run_check(*encoding, !*no_costs, common); };
}

}  // namespace tally
