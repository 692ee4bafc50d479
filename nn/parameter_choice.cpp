#include "nn/parameter_choice.hpp"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

// Standard matching that backtracks to one star: linear, except for the text between two stars.
bool fits(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t comma = list.find(',');
    parts.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
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
  for (const std::string_view pattern : parts_of(patterns)) {
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
  for (const std::string_view part : parts_of(list)) {
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
