// tally check: tests every property that an encoding must have (gradients, causality and others), within a minute, and
// measures its cost; or tests only some properties; or compares it with another encoding that should be the same
// function.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <span>

#include "core/device/device.hpp"
#include "nn/options.hpp"
#include "tasks/checks/bench.hpp"
#include "tasks/checks/encoding_check.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

struct CheckSettings {
  std::string encoding, against, only;
};

// The finding for one variant.
struct Found {
  std::string label;
  Finding finding;
};

const char* name_of(Finding::Kind kind) {
  return kind == Finding::Kind::good ? "ok" : kind == Finding::Kind::wrong ? "WRONG" : "-";
}

// Summarises a property over all variants: shows the first wrong finding, else the finding of the first variant.
// `before` holds the wrong findings so far and their properties: a repeated one is printed once.
JsonValue told(const std::string& property, const std::string& promise, const std::vector<Found>& all,
               const CommonOptions& common, std::map<std::string, std::string>& before) {
  const auto is_wrong = [](const Found& one) { return one.finding.kind == Finding::Kind::wrong; };
  const std::int64_t looked = std::ssize(all), wrong = std::ranges::count_if(all, is_wrong);
  const Found& shown = wrong > 0 ? *std::ranges::find_if(all, is_wrong) : all.front();
  char begin[64];
  std::snprintf(begin, sizeof begin, "%-11s %-6s", property.c_str(), name_of(shown.finding.kind));
  std::string text = formatted("{}{}", begin, shown.finding.text);
  if (wrong > 0) {
    const auto [first, is_new] = before.emplace(shown.finding.text, property);
    if (!is_new) text = formatted("{}the same as {}", begin, first->second);
  }
  if (looked > 1) {
    text += wrong > 0
                ? formatted("\n{}{} of {} variants, the first: {}", std::string(18, ' '), wrong, looked, shown.label)
                : formatted(" ({} variants)", looked);
  }
  if (wrong > 0) {
    tell(common, text);
  } else {
    say(common, text);
  }
  return JsonValue::object({{"property", property},
                            {"promise", promise},
                            {"found", name_of(shown.finding.kind)},
                            {"text", shown.finding.text},
                            {"variant", wrong > 0 ? shown.label : ""},
                            {"variants", looked},
                            {"wrong", wrong}});
}

// The properties of `only`, "gradients,forms", or all if it is empty.
std::vector<EncodingProperty> wanted_properties(const std::string& only) {
  const std::span<const EncodingProperty> all = encoding_properties();
  std::vector<EncodingProperty> wanted(all.begin(), all.end());
  if (only.empty()) return wanted;
  std::vector<std::string> known;
  for (const EncodingProperty& property : all) known.push_back(property.name);
  const std::vector<std::string> names = split_text(only, ',');
  for (const std::string& name : names) {
    if (std::ranges::count(known, name) > 0) continue;
    throw UsageError(formatted("[check] there is no property '{}'{}", name, did_you_mean_or_known(name, known)));
  }
  std::erase_if(wanted, [&](const auto& property) { return std::ranges::count(names, property.name) == 0; });
  return wanted;
}

JsonValue look_at_properties(std::span<const EncodingProperty> wanted, const std::vector<EncodingVariant>& variants,
                             const CommonOptions& common) {
  JsonValue properties = JsonValue::array();
  std::map<std::string, std::string> shown;
  for (const EncodingProperty& property : wanted) {
    std::vector<Found> found;
    for (std::size_t n = 0; n < variants.size(); ++n) {
      if (!property.of_each_variant && n > 0 && n + 1 < variants.size()) continue;
      found.push_back({variants[n].label, look_at(property, variants[n])});
    }
    properties.push(told(property.name, property.promise, found, common, shown));
  }
  return properties;
}

JsonValue compare_all(const std::vector<Rewriting>& rewritings, const CommonOptions& common) {
  std::vector<Found> found;
  for (const Rewriting& one : rewritings) found.push_back({one.rewritten.label, compare(one)});
  const std::string promise = formatted("the same function as {}", rewritings.front().original.text());
  std::map<std::string, std::string> shown;
  return JsonValue(JsonValue::Array{told("against", promise, found, common, shown)});
}

// The tested options, "options     cope gates=values; each by itself: share=layers, share=none, kv-heads=1, +rope". No
// other combination was tested.
std::string options_text(const std::vector<std::string>& labels) {
  const std::string& first = labels.front();
  std::vector<std::string> others;
  for (std::size_t n = 1; n < labels.size(); ++n) others.push_back(labels[n].substr(first.size() + 1));
  return formatted("options     {}{}", first, others.empty() ? "" : formatted("; each by itself: {}", joined(others)));
}

// "cost        step 1.42 of none's, 1.38 to 1.51 in 15 rounds; memory 1.15 of none's, 12.3 MiB". An encoding whose
// steps fail has no cost, and CUDA kernels executed by the CPU would take minutes.
JsonValue report_cost(const EncodingChoice& choice, const CommonOptions& common) {
  if (default_device().type == DeviceType::cuda_host) return JsonValue();
  try {
    const RelativeCost cost = cost_relative_to_none(choice);
    const double low = cost.times.front(), high = cost.times.back();
    const std::int64_t rounds = std::ssize(cost.times);
    say(common, formatted("cost        step {} of none's, {} to {} in {} rounds; memory {} of none's, {}",
                          short_number(cost.median(), 3), short_number(low, 3), short_number(high, 3), rounds,
                          short_number(cost.memory, 3), bytes_text(cost.bytes)));
    return JsonValue::object({{"step", cost.median()},
                              {"step_min", low},
                              {"step_max", high},
                              {"rounds", rounds},
                              {"memory", cost.memory},
                              {"memory_bytes", cost.bytes}});
  } catch (const Error& error) {
    say(common, formatted("cost        -     {}", error.what()));
    return JsonValue();
  }
}

Result run_check(const CheckSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  const bool alone = settings.against.empty();
  const EncodingChoice choice = options.encoding(settings.encoding),
                       other = options.encoding(alone ? "none" : settings.against);
  const std::vector<EncodingProperty> wanted = wanted_properties(settings.only);
  const std::vector<std::string> given = options.given_of_encodings();
  std::vector<EncodingVariant> variants;
  std::vector<Rewriting> rewritings;
  as_usage([&] {
    if (alone) {
      variants = variants_of(choice, given);
      for (EncodingVariant& one : variants_in_company(choice, variants.front().label)) {
        variants.push_back(std::move(one));
      }
    } else {
      // Options belong to names: two choices of the same name have the same options.
      check(choice.text() != other.text(), "check",
            "--pe and --against are both {}; two forms of an idea are compared as two encodings, each with a name of "
            "its own",
            choice.text());
      encoding_model(other);
      rewritings = rewritings_of(choice, other, given);
    }
  });
  std::vector<std::string> labels;
  for (const EncodingVariant& one : variants) labels.push_back(one.label);
  for (const Rewriting& one : rewritings) labels.push_back(one.rewritten.label);
  say(common, options_text(labels));

  JsonValue properties = alone ? look_at_properties(wanted, variants, common) : compare_all(rewritings, common);
  const std::int64_t wrong = std::ranges::count_if(
      properties.elements(), [](const JsonValue& property) { return property.integer("wrong") > 0; });
  const JsonValue cost = alone && settings.only.empty() ? report_cost(choice, common) : JsonValue();
  const std::string promises = plural(wrong, "promise");
  std::vector<std::string> untested;
  for (const JsonValue& property : properties.elements()) {
    if (property.string("found") == "-") untested.push_back(property.string("property"));
  }
  Result result{.code = wrong > 0 ? exit_code::failed : exit_code::done,
                .value = JsonValue::object({{"pe", settings.encoding},
                                            {"options", labels.front()},
                                            {"variants", JsonValue::Array(labels.begin(), labels.end())},
                                            {"wrong", wrong},
                                            {"properties", std::move(properties)}}),
                .notice = true};
  if (cost.is_object()) result.value.set("cost", cost);
  if (alone) {
    result.text = wrong > 0 ? formatted("{} not kept\n", promises)
                            : formatted("{} promises are kept{}\n", settings.only.empty() ? "all" : "these",
                                        untested.empty() ? "" : formatted("; not tested: {}", joined(untested)));
  } else {
    result.value.set("against", settings.against);
    result.text = formatted("{}{}the same function as {}\n", settings.encoding, wrong > 0 ? " is not " : " is ",
                            settings.against);
  }
  if (wrong > 0) {
    complain(
        formatted("[check] {}{}", settings.encoding,
                  alone ? formatted(" does not keep {}", promises) : formatted(" differs from {}", settings.against)));
  }
  return result;
}

}  // namespace

std::function<Result()> declare_check(CommandLine& line) {
  const auto settings = std::make_shared<CheckSettings>();
  line.add("--pe", &settings->encoding, "an encoding, a combination, or an assignment (as in 'tally train')",
           {.required = true});
  line.add("--against", &settings->against,
           "another encoding that should be the same function, such as a simpler form of the idea: compare logits and "
           "gradients in f64 instead of testing properties; parameters are matched by name");
  line.add("--only", &settings->only, "only these properties: gradients,forms", {.excludes = {"--against"}});
  const auto options =
      ConfigOptions::declare_for_encodings(line, {line.look_ahead("--pe"), line.look_ahead("--against")});
  return [settings, options, &common = line.common] { return run_check(*settings, *options, common); };
}

}  // namespace tally
