// tally gradcheck: derivatives of a whole small transformer against central differences in f64, for every encoding and
// every value of its choices and flags. T = 6 tokens, two layers; for each parameter three random directions.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "core/kernels.hpp"
#include "nn/transformer.hpp"
#include "tasks/runner/commands.hpp"

namespace tally {
namespace {

constexpr std::int64_t vocabulary = 5, length = 6;

struct Case {
  EncodingChoice choice;
  std::string label;  // "cope gates=values"
};

// Loss of the model as a function of its parameters.
class LossOfParameters {
 public:
  explicit LossOfParameters(const EncodingChoice& choice) : choice_(choice) {
    options_.layers = std::max<std::int64_t>(2, choice.least_layers());
    options_.heads = std::max<std::int64_t>(2, choice.least_heads());
    options_.width = 4 * options_.heads;
    options_.init = "fan-in";
    Rng rng({1, stream_of("gradcheck tokens"), 0});
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < length; ++t) ids.push_back(static_cast<std::int32_t>(rng.below(vocabulary)));
    tokens_ = Tensor::from(ids, {1, length}, default_device());
    mask_ = Tensor::full({1, length}, 1, DType::boolean, default_device());
  }

  // Parameters off their start values: a table of zeros would hide what comes after it.
  std::vector<Tensor> parameters() {
    const Transformer model(options_, choice_, vocabulary, length, 1, DType::f64, default_device());
    std::vector<Tensor> values;
    for (auto& [path, parameter] : model.parameters()) {
      const Tensor noise = Tensor::empty(parameter.shape(), DType::f64, parameter.device());
      kernels(noise.device()).random_normal(noise.view(), RandomStream{2, stream_of(path), 0}, 0, 0.3);
      indices_[path] = values.size();
      parameter.copy_from(add(parameter.detach(), noise));
      values.push_back(parameter.detach());
    }
    model.project_parameters();
    exempt_ = model.straight_through();
    return values;
  }

  // Whether the gradients follow a rule of their own and are no derivatives; known once there are parameters.
  bool exempt() const { return exempt_; }

  Tensor operator()(const std::vector<Tensor>& parameters) const {
    const auto given = [&](const std::string& path, const Shape&, const Fill&) {
      return parameters[indices_.at(path)];
    };
    const Initializer start(1, start_values_from_text(options_.init), DType::f64, default_device());
    Transformer model(options_, choice_, vocabulary, length, start.with_source(given));
    return cross_entropy(model.forward(tokens_), tokens_, mask_);
  }

 private:
  const EncodingChoice& choice_;
  ModelOptions options_;
  Tensor tokens_, mask_;
  std::map<std::string, std::size_t> indices_;  // of each parameter
  bool exempt_ = false;
};

// Whether there is a model of it: the value of one option may need that of another.
bool can_be_made(const EncodingChoice& choice) {
  try {
    LossOfParameters(choice).parameters();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The encoding as it is, then each other value of a choice or a flag by itself, where there is such a model. Throws
// Error for an encoding that there is none of.
std::vector<Case> cases_of(const std::string& text) {
  std::vector<Case> cases;
  cases.push_back({EncodingChoice::parse(text), text});
  LossOfParameters(cases.front().choice).parameters();
  const EncodingChoice usual = EncodingChoice::parse(text);
  for (const auto& part : usual.parts) {
    for (const OptionInfo& option : list_options(*part.options)) {
      std::vector<std::string> values = option.allowed;
      if (std::holds_alternative<bool>(option.value)) values = {"true", "false"};
      for (const std::string& value : values) {
        if (value == to_text(option.value)) continue;
        Case other{usual.clone(), concat(text, " ", option.name, "=", value)};
        other.choice.set_option(concat(part.entry->name, ".", option.name), value);
        if (can_be_made(other.choice)) cases.push_back(std::move(other));
      }
    }
  }
  return cases;
}

Result run_gradcheck(const std::string& wanted, const CommonOptions& common) {
  std::vector<Case> cases;
  if (!wanted.empty()) cases = as_usage([&] { return cases_of(wanted); });
  for (const EncodingEntry* entry : encoding_registry()) {
    if (!wanted.empty()) break;
    for (Case& one : cases_of(entry->name)) cases.push_back(std::move(one));
  }

  JsonValue results = JsonValue::array();
  std::int64_t failures = 0, exempt = 0;
  for (const Case& one : cases) {
    LossOfParameters loss(one.choice);
    const std::vector<Tensor> parameters = loss.parameters();
    if (loss.exempt()) {
      ++exempt;
      say(common, concat(one.label, ": gradients by a rule of its own, exempt"));
      continue;
    }
    const GradcheckResult result = gradcheck([&loss](const auto& inputs) { return loss(inputs); }, parameters);
    failures += !result.ok;
    results.push(JsonValue::object({{"encoding", one.label},
                                    {"ok", result.ok},
                                    {"compared", result.compared},
                                    {"worst", result.worst},
                                    {"text", result.text}}));
    char line[160];
    std::snprintf(line, sizeof line, "%-40s %-6s %4lld numbers, worst error %.2g of what is allowed", one.label.c_str(),
                  result.ok ? "ok" : "WRONG", static_cast<long long>(result.compared), result.worst);
    if (result.ok) {
      say(common, line);
    } else {
      tell(common, concat(line, "\n    ", result.text));
    }
  }
  if (failures > 0) complain(concat("[gradcheck] ", failures, " of ", cases.size(), " cases have wrong derivatives"));
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
  line.add("--pe", encoding.get(),
           "an encoding, a sum, or what acts where (as in 'tally train'); all encodings without");
  return [encoding, &common = line.common] { return run_gradcheck(*encoding, common); };
}

}  // namespace tally
