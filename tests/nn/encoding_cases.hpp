// What the tests of encodings share: no encoding is named here. Every combination of an encoding's choices and flags,
// and an encoding with its attention as one function of tensors.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/ops.hpp"
#include "core/device.hpp"
#include "core/error.hpp"
#include "core/kernels.hpp"
#include "nn/attention.hpp"
#include "nn/composed.hpp"
#include "nn/encoding_choice.hpp"

namespace tally::testing {

// Standard normal numbers, f64, on the default device; a pure function of name and shape.
inline Tensor normal_tensor(std::string_view name, const Shape& shape, double deviation = 1) {
  const Tensor tensor = Tensor::empty(shape, DType::f64, default_device());
  kernels(tensor.device()).random_normal(tensor.view(), RandomStream{11, stream_of(name), 0}, 0, deviation);
  return tensor;
}

struct EncodingCase {
  EncodingChoice choice;
  std::string label;  // "cope p-max=2 share=none"
};

// The case with every real option at twice its default; none where the encoding has no such options.
inline std::optional<EncodingCase> with_reals_doubled(const EncodingCase& one, Options& options) {
  EncodingCase doubled{one.choice.clone(), one.label};
  for (const OptionInfo& info : list_options(options)) {
    const double* value = std::get_if<double>(&info.value);
    if (value == nullptr) continue;
    doubled.choice.set_option(info.name, to_text(2 * *value));
    doubled.label += concat(" ", info.name, "=", to_text(2 * *value));
  }
  if (doubled.label == one.label) return std::nullopt;
  return doubled;
}

// All values of choices and flags, the default and 2 for integers, reals at their defaults and at twice these, in every
// combination that the options' ranges allow.
inline std::vector<EncodingCase> cases_of(const EncodingEntry& entry) {
  std::vector<EncodingCase> cases;
  cases.push_back({EncodingChoice::parse(entry.name), entry.name});
  for (const OptionInfo& info : list_options(*entry.make_options())) {
    if (info.name == "rotated-query") continue;  // the same without a rotation beside it: tested in sums
    std::vector<std::string> values{to_text(info.value)};
    if (std::holds_alternative<bool>(info.value)) values = {"false", "true"};
    if (!info.allowed.empty()) values = info.allowed;
    if (std::holds_alternative<std::int64_t>(info.value)) values.emplace_back("2");
    std::vector<EncodingCase> extended;
    for (const EncodingCase& before : cases) {
      for (const std::string& value : values) {
        EncodingCase one{before.choice.clone(), concat(before.label, " ", info.name, "=", value)};
        try {
          one.choice.set_option(info.name, value);
        } catch (const Error&) {
          continue;  // 2 is out of this integer's range
        }
        extended.push_back(std::move(one));
      }
    }
    cases = std::move(extended);
  }
  const std::size_t with_default_reals = cases.size();
  for (std::size_t n = 0; n < with_default_reals; ++n) {
    if (auto doubled = with_reals_doubled(cases[n], *entry.make_options())) cases.push_back(std::move(*doubled));
  }
  return cases;
}

inline std::vector<EncodingCase> all_cases() {
  std::vector<EncodingCase> all;
  for (const EncodingEntry* entry : encoding_registry()) {
    for (EncodingCase& one : cases_of(*entry)) all.push_back(std::move(one));
  }
  return all;
}

struct AttentionSizes {
  std::int64_t batch = 1, heads = 2, length = 5, head_width = 4, max_length = 5;
  std::int64_t width() const { return heads * head_width; }
};

using ParameterMaker = std::function<Tensor(std::string_view name, const Shape& shape, const Fill& fill)>;

// The encoding of a single layer, f64, with parameters from `source`. Names have the encoding's before them:
// "cope.table".
inline std::unique_ptr<Encoding> make_encoding(const EncodingChoice& choice, const AttentionSizes& sizes,
                                               const ParameterMaker& source) {
  const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
  EncodingSetup setup;
  setup.width = sizes.width();
  setup.heads = sizes.heads;
  setup.head_width = sizes.head_width;
  setup.layers = 1;
  setup.max_length = sizes.max_length;
  setup.start = &start;
  setup.dtype = DType::f64;
  setup.device = default_device();
  setup.parameter = [&source](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    return source(name, shape, fill);
  };
  return std::move(choice.make(setup).front().encoding);
}

// What an encoding makes of one layer's q, k, v before the weights: operands of the product, and what joins it.
struct EncodedAttention {
  AttentionOperands operands;
  Score score;
};

inline EncodedAttention encoded_attention(const Encoding& encoding, AttentionInput in) {
  AttentionOperands operands{in.q, in.k, in.v, in.scale};
  encoding.rotate(operands.q, operands.k, operands.v, in);
  in.rotated_q = operands.q;
  in.rotated_v = operands.v;
  return {operands, score_of(encoding, in)};
}

// Attention output [B, H, T, d] of q, k, v as projected, with x what the projections saw.
inline Tensor attention_output(const Encoding& encoding, const Tensor& x, const Tensor& q, const Tensor& k,
                               const Tensor& v, AttentionTrace* trace = nullptr) {
  const AttentionInput in{x, q, k, v, 1.0 / std::sqrt(static_cast<double>(q.size(3)))};
  Tensor output = encoding.mix(in);
  if (!output.defined()) {
    const auto [operands, score] = encoded_attention(encoding, in);
    const Dropout none(Initializer(0, StartValues::gpt2), "weights", 0);
    output = composed_attention(operands, score, encoding, none, Pass{}, trace);
  }
  return encoding.finish(output, in);
}

}  // namespace tally::testing
