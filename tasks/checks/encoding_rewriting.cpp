#include "tasks/checks/encoding_rewriting.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.hpp"
#include "tasks/checks/encoding_numbers.hpp"

namespace tally {
namespace {

constexpr double rounding = 1e-9;

std::vector<std::string> only_in(const EncodingChoice& one, const EncodingChoice& other) {
  std::vector<std::string> names;
  for (const EncodingChoice::Part& part : one.parts) {
    const bool shared = std::ranges::any_of(other.parts, [&](const auto& own) { return own.entry == part.entry; });
    if (!shared) names.push_back(part.entry->name);
  }
  return names;
}

// The path of the original's parameter in the rewriting: "blocks.0.position.slow@0-1.rate" with "fast" for "slow".
std::string path_in_rewriting(const Rewriting& one, std::string path) {
  constexpr std::string_view parent = "position.";
  const std::vector<std::string> own = only_in(one.rewritten.choice, one.original);
  const std::size_t found = path.find(parent);
  if (own.size() != 1 || found == std::string::npos) return path;
  const std::size_t begin = found + parent.size(), length = path.find_first_of(".@", begin) - begin;
  if (std::ranges::count(only_in(one.original, one.rewritten.choice), path.substr(begin, length)) > 0) {
    path.replace(begin, length, own.front());
  }
  return path;
}

// Throws Error naming parameters that only one of them has, or that differ in shape.
void take_parameters(Transformer& rewritten, const Transformer& original, const Rewriting& one) {
  NamedTensors values;
  for (const auto& [path, value] : original.parameters()) {
    values.emplace_back(path_in_rewriting(one, path), value.detach());
  }
  try {
    rewritten.load(values);
  } catch (const Error& error) {
    fail("check", "{} takes the parameters of {} by name, and they are others; give them the same names and shapes: {}",
         one.rewritten.choice.text(), one.original.text(), error.what());
  }
}

// True also if the deviation is not a number.
bool differs(double deviation) { return !(deviation <= rounding); }

std::size_t first_difference(const Numbers& x, const Numbers& y, double allowed) {
  std::size_t n = 0;
  while (n < x.size() && std::abs(x[n] - y[n]) <= allowed) ++n;
  return n;
}

}  // namespace

std::vector<Rewriting> rewritings_of(const EncodingChoice& rewritten, const EncodingChoice& original,
                                     const std::vector<std::string>& given) {
  const std::vector<std::string> own = only_in(rewritten, original), theirs = only_in(original, rewritten);
  std::vector<Rewriting> all;
  for (EncodingVariant& variant : variants_of(rewritten, given)) {
    EncodingChoice other = original.clone();
    if (!variant.option.empty()) {
      const std::size_t dot = variant.option.find('.');
      std::string part = variant.option.substr(0, dot);
      const bool answers = own.size() == 1 && theirs.size() == 1 && part == own.front();
      try {
        other.set_option((answers ? theirs.front() : part) + variant.option.substr(dot), variant.value);
      } catch (const Error&) {
        continue;  // only the rewriting has this option or this value
      }
    }
    all.push_back({std::move(variant), std::move(other)});
  }
  return all;
}

Finding compare(const Rewriting& one) {
  const auto wrong = [](std::string text) { return Finding{Finding::Kind::wrong, std::move(text)}; };
  try {
    const std::int64_t length =
        std::min(length_for(one.rewritten.choice, several_tiles), length_for(one.original, several_tiles));
    const auto original = encoding_model(one.original, {.length = length});
    const auto rewritten = encoding_model(one.rewritten.choice, {.length = length});
    take_parameters(*rewritten, *original, one);
    const Computed expected = computed(*original, length, default_device());
    const Computed found = computed(*rewritten, length, default_device());

    const double scale = std::max(1e-3, largest(expected.logits));
    double most = largest_difference(found.logits, expected.logits) / scale;
    if (differs(most)) {
      const std::size_t at = first_difference(found.logits, expected.logits, rounding * scale);
      const std::size_t symbols = expected.logits.size() / static_cast<std::size_t>(length);
      return wrong(formatted("logits differ by {} of the largest, from token {} of {} on", short_text(most),
                             at / symbols, length));
    }
    // A parameter's own gradient is no yardstick: it may be 0 up to rounding.
    std::map<std::string, Numbers> slopes;
    double steepest = 1e-300;
    for (const auto& [path, slope] : expected.gradients) {
      steepest = std::max(steepest, largest(slope));
      slopes[path_in_rewriting(one, path)] = slope;
    }
    for (auto entry = found.gradients.rbegin(); entry != found.gradients.rend(); ++entry) {
      const auto& [path, slope] = *entry;
      const double own = largest_difference(slope, slopes.at(path)) / steepest;
      if (differs(own)) {
        return wrong(
            formatted("the gradient of {} differs by {} of the largest of all; logits agree", path, short_text(own)));
      }
      most = std::max(most, own);
    }
    return {Finding::Kind::good, formatted("logits of {} tokens and gradients of {} parameters agree to {}", length,
                                           slopes.size(), short_text(most))};
  } catch (const Error& error) {
    return wrong(error.what());
  }
}

}  // namespace tally
