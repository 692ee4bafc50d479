// tally gradcheck: compares derivatives with central differences in f64, for a whole small transformer with every
// encoding and every value of its options. Or it compares fused attention, forward and backward, with reference
// attention, whose derivatives follow from its operations.
#include <cstdio>
#include <memory>

#include "autograd/gradcheck.hpp"
#include "tasks/checks/encoding_check.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/config_options.hpp"

namespace tally {
namespace {

// A case of the report: {"encoding", "ok", "text", ...}. It is null if there is nothing to compare; then `line` has the
// reason.
struct Compared {
  JsonValue json;
  std::string line;
};

Compared with_differences(const EncodingVariant& one) {
  const LossOfParameters loss(one.choice);
  if (loss.exempt()) return {{}, concat(one.label, ": gradients by a rule of its own, exempt")};
  const GradcheckResult result = gradcheck([&loss](const auto& inputs) { return loss(inputs); }, loss.parameters());
  char line[160];
  std::snprintf(line, sizeof line, "%-40s %-6s %4lld numbers, worst error %.2g of what is allowed", one.label.c_str(),
                result.ok ? "ok" : "WRONG", static_cast<long long>(result.compared), result.worst);
  return {JsonValue::object({{"encoding", one.label},
                             {"ok", result.ok},
                             {"compared", result.compared},
                             {"worst", result.worst},
                             {"text", result.text}}),
          result.ok ? std::string(line) : concat(line, "\n    ", result.text)};
}

Compared with_composed(const EncodingVariant& one) {
  for (const EncodingProperty& property : encoding_properties()) {
    if (property.name != "forms") continue;
    const Finding found = look_at(property, one);
    if (found.kind == Finding::Kind::left_out) return {{}, concat(one.label, ": ", found.text, ", exempt")};
    const bool ok = found.kind == Finding::Kind::good;
    char begin[64];
    std::snprintf(begin, sizeof begin, "%-40s %-6s ", one.label.c_str(), ok ? "ok" : "WRONG");
    return {JsonValue::object({{"encoding", one.label}, {"ok", ok}, {"text", found.text}}), begin + found.text};
  }
  return {};
}

Result run_gradcheck(const std::string& wanted, const ConfigOptions& options, bool composed,
                     const CommonOptions& common) {
  std::vector<EncodingVariant> cases;
  if (!wanted.empty()) {
    cases = as_usage([&] { return variants_of(options.encoding(wanted), options.given_of_encodings()); });
  }
  for (const EncodingEntry* entry : encoding_registry()) {
    if (!wanted.empty()) break;
    for (EncodingVariant& one : variants_of(EncodingChoice::parse(entry->name))) cases.push_back(std::move(one));
  }

  JsonValue results = JsonValue::array();
  std::int64_t failures = 0, exempt = 0;
  for (const EncodingVariant& one : cases) {
    Compared compared = composed ? with_composed(one) : with_differences(one);
    if (compared.json.is_null()) {
      ++exempt;
      say(common, compared.line);
      continue;
    }
    const bool ok = compared.json.boolean("ok");
    failures += !ok;
    if (ok) {
      say(common, compared.line);
    } else {
      tell(common, compared.line);
    }
    results.push(std::move(compared.json));
  }
  if (failures > 0) {
    complain(concat("[gradcheck] ", failures, " of ", cases.size(),
                    composed ? " cases differ from the composed form" : " cases have wrong derivatives"));
  }
  const std::int64_t agreeing = std::ssize(cases) - exempt - failures;
  return {
      .code = failures > 0 ? exit_code::failed : exit_code::done,
      .value = JsonValue::object({{"cases", std::move(results)}, {"exempt", exempt}, {"failures", failures}}),
      .text = agreeing == 0 ? "no case was compared\n" : concat(failures > 0 ? "" : "all ", agreeing, " cases agree\n"),
      .notice = true};
}

}  // namespace

std::function<Result()> declare_gradcheck(CommandLine& line) {
  const auto encoding = std::make_shared<std::string>();
  const auto compare = std::make_shared<std::string>("differences");
  line.add("--pe", encoding.get(),
           "an encoding, a sum, or what acts where (as in 'tally train'); all encodings without");
  line.add("--compare", compare.get(), "with central differences, or tiled attention with the composed form",
           {.allowed = {"differences", "composed"}});
  const auto options = ConfigOptions::declare_for_encodings(line, {line.look_ahead("--pe")});
  return [encoding, compare, options, &common = line.common] {
    return run_gradcheck(*encoding, *options, *compare == "composed", common);
  };
}

}  // namespace tally
