#include "nn/parameter_choice.hpp"

#include <fnmatch.h>

#include <charconv>
#include <cmath>
#include <string>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/utf8.hpp"
#include "nn/options.hpp"

namespace tally {
namespace {

bool fits(std::string_view pattern, std::string_view text) {
  return fnmatch(std::string(pattern).c_str(), std::string(text).c_str(), FNM_NOESCAPE) == 0;
}

void check_named(bool some, std::string_view where, std::string_view pattern) {
  check(some, where,
        "'{}' names no parameter that is trained; names are like blocks.0.attention.query.weight, or "
        "pe.<encoding>.<name>",
        escape_for_print(pattern, 100));
}

}  // namespace

bool names_parameter(std::string_view pattern, std::string_view path) {
  constexpr std::string_view mark = "position.";
  const std::size_t at = path.find(mark);
  const bool of_encoding = at == 0 || (at != std::string_view::npos && path[at - 1] == '.');
  return fits(pattern, path) || (of_encoding && fits(pattern, formatted("pe.{}", path.substr(at + mark.size()))));
}

bool is_linear_weight(std::string_view path, std::int64_t rank) {
  return rank >= 2 && path.ends_with(".weight") && path != "embedding.weight" && !path.ends_with("norm.weight");
}

NamedTensors train_only(const NamedTensors& parameters, std::string_view patterns) {
  if (patterns == "all") return parameters;
  std::vector<bool> chosen(parameters.size());
  for (const std::string_view pattern : split(patterns, ',')) {
    bool some = false;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!names_parameter(pattern, parameters[i].first)) continue;
      chosen[i] = some = true;
    }
    check_named(some, "train", pattern);
  }
  NamedTensors trained;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (chosen[i]) {
      trained.push_back(parameters[i]);
    } else {
      Tensor frozen = parameters[i].second;
      set_requires_grad(frozen, false);
    }
  }
  return trained;
}

std::vector<double> factors_of(const NamedTensors& parameters, std::string_view list) {
  std::vector<double> factors(parameters.size(), 1.0);
  if (list.empty()) return factors;
  std::vector<bool> set(parameters.size());
  for (const std::string_view part : split(list, ',')) {
    const std::size_t equals = part.rfind('=');
    double factor = 0;
    const std::string_view number = equals == std::string_view::npos ? "" : part.substr(equals + 1);
    const auto read = std::from_chars(number.data(), number.data() + number.size(), factor);
    const bool fine = !number.empty() && read.ec == std::errc() && read.ptr == number.data() + number.size() &&
                      std::isfinite(factor) && factor >= 0;
    check(fine, "optimiser", "lr-scale: '{}' is no pattern with a factor from 0 on, as in pe.*=10",
          escape_for_print(part, 100));
    bool some = parameters.empty();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!names_parameter(part.substr(0, equals), parameters[i].first)) continue;
      if (!set[i]) factors[i] = factor;
      set[i] = some = true;
    }
    check_named(some, "optimiser", part.substr(0, equals));
  }
  return factors;
}

}  // namespace tally
