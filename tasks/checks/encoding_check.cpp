#include "tasks/checks/encoding_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/error.hpp"
#include "tasks/checks/encoding_model.hpp"

namespace tally {
namespace {

Finding good(std::string text) { return {Finding::Kind::good, std::move(text)}; }
Finding wrong(std::string text) { return {Finding::Kind::wrong, std::move(text)}; }
Finding left_out(std::string text) { return {Finding::Kind::left_out, std::move(text)}; }

std::unique_ptr<Transformer> model_of(const EncodingVariant& variant, std::int64_t length,
                                      EncodingModelOptions options = {}) {
  options.length = length;
  options.key_heads = variant.key_heads;
  return encoding_model(variant.choice, options);
}

Computed computed(const EncodingVariant& variant, std::int64_t length, const EncodingModelOptions& options = {},
                  std::int64_t batch = 1) {
  return computed(*model_of(variant, length, options), length, options.device, batch);
}

// Differences of logits are relative to the largest logit, differences of gradients to the largest gradient of all. A
// parameter's own gradient is no yardstick: it may be 0 up to rounding.
struct Deviation {
  double size = 0;
  std::string where = "logits";
};
// Infinite if either has a value that is not finite; then nothing is compared.
Deviation deviation(const Computed& found, const Computed& expected) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  for (const Computed* one : {&found, &expected}) {
    if (!std::isfinite(largest(one->logits))) return {infinite};
    for (const auto& [path, slope] : one->gradients) {
      if (!std::isfinite(largest(slope))) return {infinite, formatted("the gradient of {}", path)};
    }
  }
  Deviation most{largest_difference(found.logits, expected.logits) / std::max(1e-3, largest(expected.logits))};
  double scale = 1e-300;
  for (const auto& [path, slope] : expected.gradients) scale = std::max(scale, largest(slope));
  for (std::size_t n = 0; n < expected.gradients.size(); ++n) {
    const double own = largest_difference(found.gradients[n].second, expected.gradients[n].second) / scale;
    if (own > most.size) most = {own, formatted("the gradient of {}", expected.gradients[n].first)};
  }
  return most;
}
Finding expect_within(const Deviation& found, double allowed, const std::string& of) {
  if (found.size == 0) return good(of + " do not differ");
  const std::string text = formatted("{} differ by {} in {}", of, short_text(found.size), found.where);
  return found.size <= allowed ? good(text) : wrong(formatted("{}, {} allowed", text, short_text(allowed)));
}

Finding look_at_gradients(const EncodingVariant& variant) {
  const std::optional<GradcheckResult> result = check_derivatives(variant);
  if (!result) return left_out("gradients by a rule of its own");
  if (!result->ok) return wrong(result->text);
  return good(formatted("{} numbers, worst error {} of what is allowed", result->compared, short_text(result->worst)));
}

// Results for a text as a whole, the reference for other ways to compute it.
struct WholeText {
  explicit WholeText(const EncodingVariant& variant, std::int64_t wanted_length)
      : length(length_for(variant.choice, wanted_length)),
        model(model_of(variant, length)),
        tokens(encoding_tokens(length)),
        logits(numbers_of(model->forward(tokens))) {}

  std::int64_t length;
  std::unique_ptr<Transformer> model;
  Tensor tokens;
  Numbers logits;
};

Finding look_at_causality(const EncodingVariant& variant) {
  const NoGrad only_values;
  const auto [length, model, tokens, before] = WholeText(variant, several_tiles);
  const std::size_t symbols = before.size() / static_cast<std::size_t>(length);
  std::int64_t tried = 0;
  for (const std::int64_t changed : {1, 5, 31, 32, 63, 64, 128}) {
    if (changed >= length) break;
    std::vector<std::int32_t> ids = tokens.to_vector<std::int32_t>();
    std::int32_t& token = ids[static_cast<std::size_t>(changed)];
    token = (token + 1) % static_cast<std::int32_t>(symbols);
    const Numbers after = numbers_of(model->forward(Tensor::from(ids, tokens.shape(), default_device())));
    for (std::size_t n = 0; n < static_cast<std::size_t>(changed) * symbols; ++n) {
      if (before[n] == after[n]) continue;
      return wrong(formatted("what is computed at token {} changes with token {}", n / symbols, changed));
    }
    ++tried;
  }
  return good(formatted("no bit before {} tokens of {} changes with them", tried, length));
}

Finding look_at_parameters(const EncodingVariant& variant) {
  const Computed all = computed(variant, length_for(variant.choice, 12));
  double most = 0;
  for (const auto& [path, slope] : all.gradients) most = std::max(most, largest(slope));
  std::int64_t count = 0;
  for (const auto& [path, slope] : all.gradients) {
    if (path.find("position.") == std::string::npos) continue;
    ++count;
    if (slope.empty()) return wrong(formatted("no gradient reaches {}: nothing that is computed uses it", path));
    // The softmax is invariant to a bias added to all keys of a row.
    if (path.ends_with(".output.bias") || largest(slope) > 1e-10 * most) continue;
    return wrong(formatted("the gradient of {} is 0 but for rounding: the model does not depend on it", path));
  }
  return good(count == 0 ? "it has none" : formatted("{} parameters, each with a gradient", count));
}

Finding look_at_forms(const EncodingVariant& variant) {
  if (model_of(variant, 6)->is_composed())
    return left_out("in composed operations alone: memory grows with the square of T");
  const std::int64_t length = length_for(variant.choice, several_tiles);
  return expect_within(deviation(computed(variant, length), computed(variant, length, {.attention = "composed"})), 1e-9,
                       formatted("tiled and composed attention of {} tokens", length));
}

// The parameters of a model whose heads all have their own keys, from a model with fewer key heads: each key head is
// repeated for the heads that share it.
void take_repeated(Transformer& full, const Transformer& shared, std::int64_t key_heads) {
  std::map<std::string, Tensor> own;
  for (const auto& [path, parameter] : shared.parameters()) own.emplace(path, parameter.detach());
  NamedTensors values;
  for (const auto& [path, parameter] : full.parameters()) {
    const Tensor& from = own.at(path);
    const std::int64_t times = parameter.numel() / from.numel(), block = from.numel() / key_heads;
    const bool is_same = from.shape() == parameter.shape();
    values.emplace_back(path,
                        is_same ? from
                                : reshape(broadcast_to(reshape(from, {key_heads, 1, block}), {key_heads, times, block}),
                                          parameter.shape()));
  }
  full.load(values);
}

Finding look_at_key_heads(const EncodingVariant& variant) {
  constexpr std::int64_t head_count = 4;
  const bool follows = std::ranges::any_of(variant.choice.parts,
                                           [](const auto& part) { return part.entry->traits.keys_follow_queries; });
  if (follows) return left_out("heads that share their keys share the change of keys, too");
  if (variant.choice.least_heads() > 1) return left_out("groups of heads are named, which may not share keys evenly");
  const NoGrad only_values;
  const std::int64_t length = length_for(variant.choice, 12);
  const Tensor tokens = encoding_tokens(length);
  double most = 0;
  for (const std::int64_t key_heads : {1, 2}) {
    const auto shared = encoding_model(variant.choice, {.length = length, .key_heads = key_heads});
    const auto full = encoding_model(variant.choice, {.length = length, .key_heads = head_count});
    take_repeated(*full, *shared, key_heads);
    const Numbers expected = numbers_of(full->forward(tokens)), found = numbers_of(shared->forward(tokens));
    most = std::max(most, largest_difference(found, expected) / std::max(1e-3, largest(expected)));
  }
  return expect_within({most}, 1e-9, "1 or 2 key heads and the same keys for each of 4 heads");
}

// The whole text and a step after the first differ only in the state that earlier tokens leave.
constexpr const char* not_kept =
    "; a tensor of earlier tokens, such as one of the keys, was probably not handed to in.keep (AttentionInput::keep), "
    "so that it has only the rows of the new tokens; or positions were counted from 0 instead of in.first";

Finding look_at_generation(const EncodingVariant& variant) {
  const NoGrad only_values;
  const auto [length, model, tokens, whole] = WholeText(variant, one_tile);
  const double scale = std::max(1e-3, largest(whole));
  // If the last rows of a text depend on later tokens, a step gives the rows of the text up to that point.
  const bool by_end = model->rows_by_end() > 0;
  const std::string name =
      formatted("{} tokens a few at a time and {}", length, by_end ? "each text up to there" : "all at once");
  Numbers in_steps, all_expected;
  GenerationState state;
  for (std::int64_t first = 0, count = 5; first < length; first += count, count = first % 2 == 0 ? 1 : 3) {
    const std::int64_t end = std::min(first + count, length);
    const auto fails = [&](const std::string& how) {
      return wrong(formatted("{} for the tokens {} to {}{}{}", how, first, end - 1,
                             first == 0 ? "" : ", computed after the others", first == 0 ? "" : not_kept));
    };
    Numbers rows;
    try {
      rows = numbers_of(model->step(slice(tokens, 1, first, end), state));
    } catch (const Error& error) {
      return fails(error.what());
    }
    const Numbers text = by_end ? numbers_of(model->forward(slice(tokens, 1, 0, end))) : whole;
    const auto at = text.begin() + std::ssize(in_steps);
    const Numbers expected(at, at + std::ssize(rows));
    const double size = largest_difference(rows, expected) / scale;
    if (!(size <= 1e-9)) return fails(expect_within({size}, 1e-9, name).text);
    in_steps.insert(in_steps.end(), rows.begin(), rows.end());
    all_expected.insert(all_expected.end(), expected.begin(), expected.end());
  }
  return expect_within({largest_difference(in_steps, all_expected) / scale}, 1e-9, name);
}

Finding look_at_precision(const EncodingVariant& variant) {
  const std::int64_t length = length_for(variant.choice, one_tile);
  const EncodingVariant plain{EncodingChoice::parse("none"), "none"};
  const bool exempt = model_of(variant, length)->straight_through();
  const auto single = [&](const EncodingVariant& one) {
    Computed found = computed(one, length, {.dtype = DType::f32}), expected = computed(one, length);
    if (exempt) found.gradients = expected.gradients = {};  // these may jump
    return deviation(found, expected);
  };
  // Positions that are sums of gates may be as large as the text is long.
  return expect_within(single(variant), 100 * std::max(1e-6, single(plain).size), "f32 and f64");
}

Finding look_at_threads(const EncodingVariant& variant) {
  const std::int64_t length = length_for(variant.choice, several_tiles);
  const struct Restored {
    int before = thread_count();
    ~Restored() { set_thread_count(before); }
  } restored;
  Computed alone;
  Deviation most;
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    Computed own = computed(variant, length, {.dtype = DType::f32}, 2);
    if (threads == 1) {
      alone = std::move(own);
    } else if (const Deviation found = deviation(own, alone); found.size > 0) {
      most = found;
    }
  }
  if (std::isinf(most.size)) return wrong(most.where + " are not finite");
  if (most.size > 0) return wrong(most.where + " depend on the number of threads");
  return good("the same bits of logits and gradients for 1, 2 and 3 threads");
}

Finding look_at_devices(const EncodingVariant& variant) {
  std::vector<Device> devices;
  std::string missing;
  for (const DeviceType type : {DeviceType::cuda_host, DeviceType::cuda}) {
    try {
      backend({type, 0});
      devices.push_back({type, 0});
    } catch (const Error& error) {
      if (missing.empty()) missing = error.what();
    }
  }
  if (devices.empty()) return left_out(missing);
  const std::int64_t length = length_for(variant.choice, one_tile);
  const Computed cpu = computed(variant, length, {.device = Device{}});
  Finding found;
  for (const Device device : devices) {
    const Finding own = expect_within(deviation(computed(variant, length, {.device = device}), cpu), 1e-9,
                                      formatted("cpu and {}", device));
    if (found.kind != Finding::Kind::wrong) found = own;
  }
  return found;
}

// Whether the text contains the number as a whole number, not as digits of another one.
bool has_number(const std::string& text, std::int64_t number) {
  const std::string digits = std::to_string(number);
  const auto is_digit = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  for (std::size_t at = text.find(digits); at != std::string::npos; at = text.find(digits, at + 1)) {
    if (!is_digit(at + digits.size()) && (at == 0 || !is_digit(at - 1))) return true;
  }
  return false;
}

Finding look_at_length(const EncodingVariant& variant) {
  constexpr std::int64_t trained = 12, longer = 24;
  const NoGrad only_values;
  const auto model = model_of(variant, trained);
  std::int64_t most = longer;
  while (most > 1 && !takes(*model, most)) --most;
  const Tensor tokens = encoding_tokens(most);
  const std::int64_t begin = std::min(trained, most);
  Numbers within;
  try {
    within = numbers_of(model->forward(tokens));
  } catch (const Error& error) {
    return wrong(
        formatted("{} for a text of {} tokens, and a model made for {}; an encoding that has a limit refuses "
                  "longer texts in check_length, naming the limit",
                  error.what(), most, trained));
  }
  Numbers alone = numbers_of(model->forward(slice(tokens, 1, 0, begin)));
  const std::int64_t rows = begin - std::min(begin, model->rows_by_end());
  alone.resize(alone.size() / static_cast<std::size_t>(begin) * static_cast<std::size_t>(rows));
  within.resize(alone.size());
  const Finding same = expect_within({largest_difference(within, alone) / std::max(1e-3, largest(alone))}, 1e-9,
                                     formatted("a text of {} tokens and its first {}", most, rows));
  if (most == longer || same.kind == Finding::Kind::wrong) return same;
  try {
    model->check_length(longer);
  } catch (const Error& error) {
    if (!has_number(error.what(), most))
      return wrong(formatted("{} tokens are the limit, not named: {}", most, error.what()));
    return good(error.what());
  }
  return same;
}

}  // namespace

std::span<const EncodingProperty> encoding_properties() {
  static const std::array<EncodingProperty, 10> all{{
      {"gradients", "derivatives agree with central differences", look_at_gradients},
      {"causality", "nothing depends on later tokens", look_at_causality},
      {"parameters", "each of them matters", look_at_parameters},
      {"forms", "tiled attention is the composed one", look_at_forms},
      {"key-heads", "shared key heads are equal separate ones", look_at_key_heads},
      {"generation", "token by token as the whole text", look_at_generation},
      {"precision", "f32 is within a hundred times what it is without", look_at_precision},
      {"threads", "the same bits for any number", look_at_threads},
      {"devices", "CUDA kernels agree with the CPU", look_at_devices, false},
      {"length", "longer texts than trained, or an error that names the limit", look_at_length},
  }};
  return all;
}

Finding look_at(const EncodingProperty& property, const EncodingVariant& variant) {
  try {
    return property.look(variant);
  } catch (const Error& error) {
    return wrong(error.what());
  }
}

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
    if (variant.option.empty() && !all.empty()) continue;  // several options at once
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
    return good(formatted("logits of {} tokens and gradients of {} parameters agree to {}", length, slopes.size(),
                          short_text(most)));
  } catch (const Error& error) {
    return wrong(error.what());
  }
}

}  // namespace tally
