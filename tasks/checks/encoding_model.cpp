#include "tasks/checks/encoding_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <variant>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

constexpr std::int64_t vocabulary = 5, length_of_loss = 6;

ModelOptions sizes_for(const EncodingChoice& choice, const std::string& attention, std::int64_t key_heads) {
  ModelOptions options;
  options.layers = std::max<std::int64_t>(2, choice.least_layers());
  options.heads = std::max<std::int64_t>(key_heads > 0 ? 4 : 2, choice.least_heads());
  options.kv_heads = key_heads;
  options.width = 4 * options.heads;
  options.init = "fan-in";
  options.attention = attention;
  return options;
}

// Whether the value is in the option's range.
bool set(EncodingChoice& choice, const std::string& name, const std::string& value) {
  try {
    choice.set_option(name, value);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether the encoding refuses these options, this combination or these sizes. Its error then begins with a name.
bool is_refused(const EncodingVariant& variant) {
  try {
    encoding_model(variant.choice, {.key_heads = variant.key_heads})->check_length(length_of_loss);
    return false;
  } catch (const Error& error) {
    const std::string text = error.what();
    const auto names = [&](const std::string& where) { return text.find("[" + where + "]") != std::string::npos; };
    return names("encoding") || (variant.key_heads > 0 && names("model")) ||
           std::ranges::any_of(variant.choice.parts, [&](const auto& part) { return names(part.entry->name); });
  }
}

// Other values of an option to try. `all`: every accepted value is a variant of its own, otherwise the first one is.
struct OtherValues {
  std::vector<std::string> values;
  bool all = true;
};
OtherValues other_values(const OptionInfo& option) {
  if (std::holds_alternative<bool>(option.value)) return {{"true", "false"}};
  if (std::holds_alternative<std::int64_t>(option.value)) return {{"2", "3", "1"}, false};
  if (const double* real = std::get_if<double>(&option.value)) {
    return {{to_text(2 * *real), to_text(*real / 2), "1", "0.5", "-0.5"}, false};
  }
  return {option.allowed};
}

EncodingChoice sum_with(const EncodingChoice& choice, const std::vector<const EncodingEntry*>& companions) {
  EncodingChoice sum = choice.clone();
  for (const EncodingEntry* entry : companions) sum.parts.push_back({entry, entry->make_options()});
  std::ranges::sort(sum.parts, {}, [](const auto& part) { return part.entry->name; });
  return sum;
}

// The encodings that are combined with others, and with an encoding that may read the rotated q also a rotation.
std::vector<std::vector<const EncodingEntry*>> companions() {
  std::vector<const EncodingEntry*> all;
  std::ranges::copy_if(encoding_registry(), std::back_inserter(all),
                       [](const EncodingEntry* entry) { return entry->traits.companion; });
  std::vector<std::vector<const EncodingEntry*>> groups;
  for (const EncodingEntry* entry : all) {
    groups.push_back({entry});
    const auto rotation = std::ranges::find_if(all, [](const auto* other) { return other->traits.rotates; });
    if (entry->has_rotated_query() && rotation != all.end()) groups.back().push_back(*rotation);
  }
  return groups;
}

}  // namespace

std::vector<EncodingVariant> variants_of(const EncodingChoice& usual, const std::vector<std::string>& given) {
  EncodingVariant plain{usual.clone(), usual.text()};
  struct Changeable {
    std::string name;  // "cope.gates"
    OptionInfo option;
  };
  std::vector<Changeable> changeable;
  for (const auto& part : usual.parts) {
    for (const OptionInfo& option : list_options(*part.options)) {
      const std::string name = formatted("{}.{}", part.entry->name, option.name);
      if (std::ranges::count(given, name) == 0) {
        changeable.push_back({name, option});
      } else {
        plain.label += formatted(" {}={}", option.name, to_text(option.value));
      }
    }
  }
  if (is_refused(plain)) encoding_model(usual)->check_length(length_of_loss);  // throws
  const auto changed = [&](const EncodingVariant& from, const Changeable& one, const std::string& value) {
    EncodingVariant other{from.choice.clone(), formatted("{} {}={}", from.label, one.option.name, value), one.name,
                          value};
    const bool is_other = value != to_text(one.option.value) && set(other.choice, one.name, value);
    return is_other && !is_refused(other) ? std::optional(std::move(other)) : std::nullopt;
  };
  std::vector<EncodingVariant> variants;
  EncodingVariant all_changed{usual.clone(), plain.label};
  variants.push_back(std::move(plain));
  for (const Changeable& one : changeable) {
    const OtherValues others = other_values(one.option);
    std::size_t found = 0;
    for (const std::string& value : others.values) {
      if (auto variant = changed(variants.front(), one, value); variant && (others.all || found == 0)) {
        variants.push_back(std::move(*variant));
        ++found;
      }
    }
  }
  // One value may require another, so the options are changed one after the other, as far as they allow it.
  std::size_t count = 0;
  for (const Changeable& one : changeable) {
    for (const std::string& value : other_values(one.option).values) {
      auto variant = changed(all_changed, one, value);
      if (!variant) continue;
      all_changed = {std::move(variant->choice), std::move(variant->label)};
      ++count;
      break;
    }
  }
  if (count > 1) variants.push_back(std::move(all_changed));
  return variants;
}

std::vector<EncodingVariant> variants_in_company(const EncodingChoice& usual, const std::string& label) {
  std::vector<EncodingVariant> variants;
  const auto add = [&](EncodingVariant variant) {
    if (!is_refused(variant)) variants.push_back(std::move(variant));
  };
  for (const std::int64_t key_heads : {1, 2}) {
    add({usual.clone(), formatted("{} kv-heads={}", label, key_heads), {}, {}, key_heads});
  }
  if (!usual.assignments.empty()) return variants;
  std::set<std::string> labels;
  for (std::vector<const EncodingEntry*> entries : companions()) {
    std::erase_if(entries, [&](const EncodingEntry* entry) {
      return std::ranges::any_of(usual.parts, [&](const auto& part) { return part.entry == entry; });
    });
    std::string sum_label = label + " ";
    for (const EncodingEntry* entry : entries) sum_label += "+" + entry->name;
    if (entries.empty() || !labels.insert(sum_label).second) continue;
    EncodingVariant sum{sum_with(usual, entries), sum_label};
    for (const auto& part : sum.choice.parts) {
      const bool rotates = std::ranges::any_of(
          sum.choice.parts, [&](const auto& other) { return &other != &part && other.entry->traits.rotates; });
      if (!rotates || !part.entry->has_rotated_query()) continue;
      const std::string name = formatted("{}.{}", part.entry->name, rotated_query_option);
      EncodingVariant flagged{sum.choice.clone(), formatted("{} {}=true", sum.label, name)};
      if (set(flagged.choice, name, "true")) add(std::move(flagged));
    }
    add(std::move(sum));
  }
  EncodingVariant windowed{usual.clone(), label + " [window=20,first=2]"};
  std::vector<const EncodingEntry*> sum;
  for (const auto& part : usual.parts) sum.push_back(part.entry);
  windowed.choice.assignments = {{.mask = {.window = 20, .first = 2}, .sum = std::move(sum)}};
  add(std::move(windowed));
  return variants;
}

std::unique_ptr<Transformer> encoding_model(const EncodingChoice& choice, const EncodingModelOptions& options) {
  const ModelOptions sizes = sizes_for(choice, options.attention, options.key_heads);
  // In double precision first, so that f32 values are these values rounded, not other random numbers.
  Transformer exact(sizes, choice, vocabulary, options.length, 1, DType::f64, Device{});
  NamedTensors values = exact.parameters();
  for (auto& [path, parameter] : values) {
    const Tensor noise = Tensor::empty(parameter.shape(), DType::f64, Device{});
    kernels(noise.device()).random_normal(noise.view(), RandomStream{2, stream_of(path), 0}, 0, 0.3);
    parameter.copy_from(add(parameter.detach(), noise));
  }
  exact.project_parameters();
  for (auto& [path, parameter] : values) parameter = parameter.detach().to(options.dtype).to(options.device);
  auto model =
      std::make_unique<Transformer>(sizes, choice, vocabulary, options.length, 1, options.dtype, options.device);
  model->load(values);
  return model;
}

Tensor encoding_tokens(std::int64_t length, Device device, std::int64_t batch) {
  Rng rng({1, stream_of("tokens of encodings"), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < batch * length; ++n) ids.push_back(static_cast<std::int32_t>(rng.below(vocabulary)));
  return Tensor::from(ids, {batch, length}, device);
}

std::optional<GradcheckResult> check_derivatives(const EncodingVariant& variant) {
  const auto model = encoding_model(variant.choice, {.length = length_of_loss, .key_heads = variant.key_heads});
  if (model->straight_through()) return std::nullopt;
  std::vector<Tensor> values;
  std::map<std::string, std::size_t> indices;  // by parameter path
  for (const auto& [path, parameter] : model->parameters()) {
    indices[path] = values.size();
    values.push_back(parameter.detach());
  }
  const auto loss = [&](const std::vector<Tensor>& parameters) {
    const auto given = [&](const std::string& path, const Shape&, const Fill&) { return parameters[indices.at(path)]; };
    const Device device = parameters.front().device();
    const ModelOptions sizes = sizes_for(variant.choice, "tiled", variant.key_heads);
    const Initializer start(1, start_values_from_text(sizes.init), DType::f64, device);
    Transformer function(sizes, variant.choice, vocabulary, length_of_loss, start.with_source(given));
    const Tensor tokens = encoding_tokens(length_of_loss, device);
    return cross_entropy(function.forward(tokens), tokens, Tensor::full(tokens.shape(), 1, DType::boolean, device));
  };
  return gradcheck(loss, values);
}

Numbers numbers_of(const Tensor& x) { return x.to(Device{}).to(DType::f64).to_vector<double>(); }

double largest(const Numbers& x) {
  double most = 0;
  for (const double v : x) most = std::isnan(v) ? std::numeric_limits<double>::infinity() : std::max(most, std::abs(v));
  return most;
}

double largest_difference(const Numbers& x, const Numbers& y) {
  if (x.size() != y.size()) return std::numeric_limits<double>::infinity();
  Numbers differences;
  for (std::size_t n = 0; n < x.size(); ++n) differences.push_back(x[n] - y[n]);
  return largest(differences);
}

std::string short_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", x);
  return text;
}

bool takes(const Transformer& model, std::int64_t length) {
  try {
    model.check_length(length);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::int64_t length_for(const EncodingChoice& choice, std::int64_t wanted) {
  const auto model = encoding_model(choice, {.length = wanted});
  std::int64_t length = wanted;
  while (length > 2 && !takes(*model, length)) --length;
  return length;
}

Computed computed(Transformer& model, std::int64_t length, Device device, std::int64_t batch) {
  const Tensor tokens = encoding_tokens(length, device, batch);
  const Tensor logits = model.forward(tokens);
  backward(cross_entropy(logits, tokens, Tensor::full(tokens.shape(), 1, DType::boolean, device)));
  Computed result{numbers_of(logits), {}};
  for (const auto& [path, parameter] : model.parameters()) {
    const Tensor slope = gradient(parameter);
    result.gradients.emplace_back(path, slope.defined() ? numbers_of(slope) : Numbers());
  }
  return result;
}

}  // namespace tally
