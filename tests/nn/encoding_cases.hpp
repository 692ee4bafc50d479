// Shared by the tests of encodings, without naming one. Cases of options for an encoding, and an encoding with its
// attention as one function of tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/score_mod_tensors.hpp"
#include "core/device/device.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"
#include "nn/attention/composed.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/transformer.hpp"
#include "tests/nn/share.hpp"

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

// Whether the choice has the encoding that TALLY_TEST_ENCODING names in the environment (tests/run.sh --encoding). True
// without that variable. If TALLY_TEST_COMPANIONS is set, " alibi rope ", it may have only these encodings in addition,
// so that an unfinished encoding cannot fail the tests of another one. Throws Error for an unknown name.
inline bool is_asked(const EncodingChoice& choice) {
  const char* const name = std::getenv("TALLY_TEST_ENCODING");
  if (name == nullptr) return true;
  const char* const companions = std::getenv("TALLY_TEST_COMPANIONS");
  const EncodingEntry* const wanted = &find_encoding(name);
  const auto is_wanted = [&](const auto& part) { return part.entry == wanted; };
  const auto may_be_there = [&](const auto& part) {
    return is_wanted(part) || companions == nullptr ||
           std::string_view(companions).find(formatted(" {} ", part.entry->name)) != std::string_view::npos;
  };
  return std::ranges::any_of(choice.parts, is_wanted) && std::ranges::all_of(choice.parts, may_be_there);
}
inline std::vector<EncodingCase> asked(std::vector<EncodingCase> cases) {
  std::erase_if(cases, [](const EncodingCase& one) { return !is_asked(one.choice); });
  return cases;
}

// The case with another value of one option, and with the option without which that has no effect. None if it is out of
// its range or contradicts the other options.
inline std::optional<EncodingCase> with_option(const EncodingCase& one, const OptionInfo& info,
                                               const std::string& value) {
  EncodingCase changed{one.choice.clone(), formatted("{} {}={}", one.label, info.name, value)};
  Options& options = *changed.choice.parts[0].options;
  try {
    const std::vector<OptionInfo> infos = list_options(options);
    const auto other = std::ranges::find(infos, info.other, &OptionInfo::name);
    if (other != infos.end() && std::ranges::count(info.needed, to_text(other->value)) == 0) {
      changed.label += formatted(" {}={}", info.other, info.needed.front());
      changed.choice.set_option(info.other, info.needed.front());
    }
    changed.choice.set_option(info.name, value);
    check_values(options, one.label);
    options.validate();
  } catch (const Error&) {
    return std::nullopt;
  }
  return changed;
}

// The case with each other value of a choice or a flag, or with one other number. Two small whole numbers are tried,
// and for real numbers twice the default and 1: one of them differs from the default, is in the option's range, and
// suits the small sizes of the tests. The second one of two that work would only repeat the first.
inline std::vector<EncodingCase> with_other_values(const EncodingCase& one, const OptionInfo& info) {
  std::vector<std::string> values = info.allowed;
  const bool is_number = info.allowed.empty() && !std::holds_alternative<bool>(info.value);
  if (std::holds_alternative<bool>(info.value)) values = {"false", "true"};
  if (std::holds_alternative<std::int64_t>(info.value)) values = {"2", "3"};
  if (const double* real = std::get_if<double>(&info.value)) values = {to_text(2 * *real), "1"};
  std::vector<EncodingCase> changed;
  for (const std::string& value : values) {
    if (value == to_text(info.value)) continue;
    if (auto other = with_option(one, info, value)) changed.push_back(std::move(*other));
    if (is_number && !changed.empty()) break;
  }
  return changed;
}

// The default options, each other value of each option, some combinations, and last all options changed.
inline std::vector<EncodingCase> cases_of(const EncodingEntry& entry) {
  constexpr std::uint32_t combinations = 8;
  std::vector<EncodingCase> cases;
  cases.push_back({EncodingChoice::parse(entry.name), entry.name});
  std::vector<OptionInfo> infos = list_options(*entry.make_options());
  std::erase_if(infos, [](const OptionInfo& info) { return info.name == rotated_query_option; });  // for sums
  for (const OptionInfo& info : infos) {
    for (EncodingCase& other : with_other_values(cases.front(), info)) cases.push_back(std::move(other));
  }
  if (infos.size() < 2) return cases;
  Rng rng({1, stream_of(entry.name), 0});
  std::set<std::string> labels;
  for (std::uint32_t n = 0; n <= combinations; ++n) {
    EncodingCase drawn{cases.front().choice.clone(), cases.front().label};
    for (const OptionInfo& info : infos) {
      std::vector<EncodingCase> others = with_other_values(drawn, info);
      if (others.empty() || (n < combinations && rng.below(2) == 0)) continue;
      const std::size_t chosen = n < combinations ? rng.below(static_cast<std::uint32_t>(others.size())) : 0;
      drawn = std::move(others[chosen]);
    }
    if (n == combinations || labels.insert(drawn.label).second) cases.push_back(std::move(drawn));
  }
  return cases;
}

inline std::vector<EncodingCase> all_cases() {
  std::vector<EncodingCase> all;
  for (const EncodingEntry* entry : encoding_registry()) {
    for (EncodingCase& one : asked(cases_of(*entry))) all.push_back(std::move(one));
  }
  return all;
}

// One case for each encoding, with default options.
inline std::vector<EncodingCase> plain_singles() {
  std::vector<EncodingCase> cases;
  for (const EncodingEntry* entry : encoding_registry()) {
    cases.push_back({EncodingChoice::parse(entry->name), entry->name});
  }
  return cases;
}
inline std::vector<EncodingCase> plain_cases() { return asked(plain_singles()); }

// The same with masks in which queries do not attend to all keys before them.
inline std::vector<EncodingCase> windowed_cases() {
  std::vector<EncodingCase> cases;
  for (const EncodingEntry* entry : encoding_registry()) {
    const std::string text =
        formatted("{}{}", entry->name, cases.size() % 2 == 0 ? "[window=20,first=2]" : "[window=40,chunk=33]");
    cases.push_back({EncodingChoice::parse(text), text});
  }
  return asked(std::move(cases));
}

// Sets the option rotated-query, if the other options allow it. False: it is not set.
inline bool set_rotated_query(EncodingCase& one) {
  for (const OptionInfo& info : list_options(*one.choice.parts[0].options)) {
    if (info.name != rotated_query_option) continue;
    auto set = with_option(one, info, "true");
    if (set) one = std::move(*set);
    return set.has_value();
  }
  return false;
}

// The same with all of its options changed: the last of its cases, queries as rotated.
inline std::vector<EncodingCase> changed_singles() {
  std::vector<EncodingCase> cases;
  for (const EncodingEntry* entry : encoding_registry()) {
    cases.push_back(std::move(cases_of(*entry).back()));
    set_rotated_query(cases.back());
  }
  return cases;
}
inline std::vector<EncodingCase> changed_cases() { return asked(changed_singles()); }

// What `text` names, with the options that these cases give its encodings.
inline EncodingCase combined(const std::string& text, const EncodingCase& one, const EncodingCase& other) {
  EncodingCase both{EncodingChoice::parse(text), formatted("{} of {}, {}", text, one.label, other.label)};
  for (const EncodingCase* given : {&one, &other}) {
    for (const EncodingChoice::Part& from : given->choice.parts) {
      for (EncodingChoice::Part& part : both.choice.parts) {
        if (part.entry == from.entry) part.options = from.options->clone();
      }
    }
  }
  return both;
}

inline EncodingCase sum_of(const EncodingCase& one, const EncodingCase& other) {
  return combined(formatted("{}+{}", one.choice.text(), other.choice.text()), one, other);
}

// The sum of every two of these. Those that refuse each other are among them.
inline std::vector<EncodingCase> pairs(const std::vector<EncodingCase>& singles) {
  std::vector<EncodingCase> cases;
  for (std::size_t a = 0; a < singles.size(); ++a) {
    for (std::size_t b = a + 1; b < singles.size(); ++b) cases.push_back(sum_of(singles[a], singles[b]));
  }
  return cases;
}

// Each of these with the next one: in another layer, and on other heads.
inline std::vector<EncodingCase> neighbours(const std::vector<EncodingCase>& singles) {
  std::vector<EncodingCase> cases;
  for (std::size_t a = 0; a < singles.size(); ++a) {
    const EncodingCase &one = singles[a], &other = singles[(a + 1) % singles.size()];
    const std::string first = one.choice.text(), second = other.choice.text();
    cases.push_back(combined(formatted("0:{},1:{}", first, second), one, other));
    cases.push_back(combined(formatted("{}@0,{}@1", first, second), one, other));
  }
  return cases;
}

// Every encoding that can use rotated queries, as it is and with all options changed, with every rotation that keeps
// their width.
inline std::vector<EncodingCase> rotated_query_cases() {
  std::vector<EncodingCase> cases;
  const auto add = [&](std::vector<EncodingCase> singles) {
    for (EncodingCase& one : singles) {
      if (!one.choice.parts[0].entry->has_rotated_query() || !set_rotated_query(one)) continue;
      for (const EncodingCase& rotation : plain_singles()) {
        const EncodingTraits& traits = rotation.choice.parts[0].entry->traits;
        if (traits.rotates && !traits.widens_heads) cases.push_back(sum_of(one, rotation));
      }
    }
  };
  add(plain_singles());
  add(changed_singles());
  return asked(std::move(cases));
}

// Encodings together: with default options, then one of each `step` cases with other options.
inline std::vector<EncodingCase> together_cases(std::size_t step = 1) {
  std::vector<EncodingCase> all = asked(pairs(plain_singles()));
  std::set<std::string> labels;
  const auto add = [&](std::vector<EncodingCase> cases, std::size_t one_of) {
    for (EncodingCase& one : every(one_of, asked(std::move(cases)))) {
      if (labels.insert(one.label).second) all.push_back(std::move(one));
    }
  };
  for (const EncodingCase& one : all) labels.insert(one.label);
  add(neighbours(plain_singles()), 1);
  add(pairs(changed_singles()), step);
  add(neighbours(changed_singles()), step);
  add(rotated_query_cases(), step);
  return all;
}

// Each encoding as it is and with all of its options changed.
inline std::vector<EncodingCase> plain_and_changed_cases() {
  std::vector<EncodingCase> cases = plain_cases();
  for (EncodingCase& one : changed_cases()) cases.push_back(std::move(one));
  return cases;
}

// All cases, or few where tests take a share. (Every option there: tests of forms, reference values.)
inline std::vector<EncodingCase> cases_here() { return takes_a_share() ? plain_and_changed_cases() : all_cases(); }

// Whether an error is about these encodings: that they cannot act together, or one of them not for this length.
inline bool names_encodings(std::string_view error, const EncodingChoice& choice) {
  const auto holds = [&](std::string_view part) { return error.find(part) != std::string_view::npos; };
  return holds("[encoding]") || std::any_of(choice.parts.begin(), choice.parts.end(),
                                            [&](const auto& part) { return holds(part.entry->name); });
}

// Whether the loss of a model of this case does not depend on the parameter at all, so that its gradient is 0 up to
// rounding. The softmax cancels a number that is added to all keys of a row. Such numbers come from a key's bias,
// except through gates of these keys. They come from the last bias of an encoding's network ("output.bias" by
// convention), and from the biases of two hidden units that are above zero at every position in the test models. With a
// single key the softmax cancels everything. The norm of mta's outputs cancels a factor of all weights; `mix-after` is
// one if it acts on one head.
inline bool zero_by_symmetry(const EncodingCase& one, std::string_view path, std::int64_t length) {
  const bool of_a_position = path.find("position.") != std::string_view::npos;
  const bool of_scores = of_a_position || path.find("attention.query.") != std::string_view::npos ||
                         path.find("attention.key.") != std::string_view::npos;
  const bool of_two_units = path.ends_with(".hidden.bias") && one.label.find("hidden=2") != std::string::npos;
  const bool of_one_head = path.ends_with(".mta.mix-after") && one.label.find("mta@") != std::string::npos;
  return of_one_head || path.ends_with(".key.bias") || (of_a_position && path.ends_with(".output.bias")) ||
         of_two_units || (length == 1 && of_scores);
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
  ModelOptions model;
  model.width = sizes.width();
  model.heads = sizes.heads;
  model.layers = 1;
  EncodingSetup setup = EncodingSetup::of(model, sizes.max_length, start);
  setup.make_parameter = [&source](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    return source(name, shape, fill);
  };
  return std::move(choice.make(setup).front().encoding);
}

// The result of an encoding for one layer's q, k, v before the weights: the operands of q k^T, and the terms of the
// score.
struct EncodedAttention {
  AttentionOperands operands;
  Score score;
};

inline EncodedAttention encoded_attention(const Encoding& encoding, AttentionInput in) {
  AttentionOperands operands{in.q, in.k, in.v, in.scale, in.mask};
  encoding.rotate(operands.q, operands.k, operands.v, in);
  in.rotated_q = operands.q;
  in.rotated_k = operands.k;
  in.rotated_v = operands.v;
  return {operands, score_of(encoding, in)};
}

// Positions [..., T, T] of all keys that a query has.
inline std::vector<double> seen_positions(const Tensor& positions) {
  const std::vector<double> all = positions.to_vector<double>();
  const auto length = static_cast<std::size_t>(positions.size(-1));
  std::vector<double> seen;
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (n % length <= n / length % length) seen.push_back(all[n]);
  }
  return seen;
}

// The positions at which a score modification without a sum reads its table.
inline Tensor places_of(const AttentionOperands& operands, const AppliedScoreMod& applied) {
  const Tensor keys = repeat_kv(operands.k, operands.q.size(1));
  ScoreModTensors pairs;
  pairs.s = matmul(operands.q, transpose(keys, -1, -2), operands.scale);
  const Tensor index = cumsum(Tensor::full({1, operands.q.size(2)}, 1.0, operands.q.dtype(), operands.q.device()));
  pairs.distance = relu(transpose(index, 0, 1) - index);
  pairs.rows = applied.rows;
  pairs.heads = applied.heads;
  return broadcast_to(applied.mod->on_tensors->position(pairs), pairs.s.x.shape());
}

// By how much positions may differ before one of them passes a place where its score bends: an integer up to P, or
// where a hidden unit leaves zero. Infinite where nothing bends.
inline double distance_to_kinks(const AttentionOperands& operands, const Score& score) {
  const NoGrad only_values;
  double nearest = std::numeric_limits<double>::infinity();
  for (const AppliedScoreMod* const pair : score.score_mods()) {
    std::vector<double> kinks;
    if (pair->knots.defined()) {
      kinks = pair->knots.to_vector<double>();
    } else if (pair->table.defined()) {
      for (std::int64_t n = 0; n < pair->table.size(3); ++n) kinks.push_back(static_cast<double>(n));
    }
    if (kinks.empty()) continue;
    Score alone = score;
    alone.score_mod = *pair;
    alone.more_score_mods.clear();
    AttentionTrace trace;
    composed_logits(operands, alone, &trace);
    const bool sums = pair->mod->traits.sums;
    for (const double position : seen_positions(sums ? trace.positions : places_of(operands, *pair))) {
      for (const double kink : kinks) nearest = std::min(nearest, std::abs(position - kink));
    }
  }
  return nearest;
}

// Attention output [B, H, T, d] of projected q, k, v; x is the input of the projections.
inline Tensor attention_output(const Encoding& encoding, const Tensor& x, const Tensor& q, const Tensor& k,
                               const Tensor& v, AttentionTrace* trace = nullptr, const AttentionMask& mask = {}) {
  AttentionInput in{x, q, k, v, 1.0 / std::sqrt(static_cast<double>(q.size(3)))};
  in.mask = mask;
  Tensor output = encoding.mix(in);
  if (!output.defined()) {
    const auto [operands, score] = encoded_attention(encoding, in);
    const Dropout none(Initializer(0, StartValues::gpt2), "weights", 0);
    output = composed_attention(operands, score, encoding, in, none, ForwardContext{}, trace);
  }
  return encoding.finish(output, in);
}

}  // namespace tally::testing
