// Measurement; explain_views.cpp formats the results.
#include "tasks/inspect/explain.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "tasks/data/batch.hpp"

namespace tally {
namespace {

// One sequence with its roles and sources.
struct Reading {
  std::size_t length;
  std::vector<std::size_t> roles;     // of each token
  std::vector<std::int32_t> sources;  // Task::sources
  const std::vector<std::uint8_t>* scored;
};

// A T x T matrix of one head, row by row. A shorter sequence uses the upper left corner.
struct Square {
  const double* values;
  std::size_t width;

  double at(std::size_t query, std::size_t key) const { return values[query * width + key]; }
};

// Running means by role, over all queries and over the scored ones.
class RoleMeans {
 public:
  void add(std::size_t role, double value, bool scored) {
    if (role >= all_.size()) all_.resize(role + 1), scored_.resize(role + 1);
    all_[role].add(value);
    if (scored) scored_[role].add(value);
  }
  MeansByRole result(std::size_t roles) const {
    MeansByRole means;
    for (std::size_t role = 0; role < roles; ++role) {
      const bool seen = role < all_.size();
      means.scored.push_back(seen ? scored_[role].result() : MeanDeviation{});
      means.all.push_back(seen ? all_[role].result() : MeanDeviation{});
    }
    return means;
  }

 private:
  std::vector<RunningMean> all_, scored_;
};

// The location of a kind of gate in a trace, and its formula.
struct GateSource {
  GateKind kind;
  Tensor AttentionTrace::*tensor;
  // The gate of query i and key j; nothing if there is none.
  std::optional<double> (*read)(const Square& square, std::size_t i, std::size_t j);
};

const GateSource gate_sources[] = {
    {contextual_gates, &AttentionTrace::gates,
     [](const Square& g, std::size_t i, std::size_t j) -> std::optional<double> { return g.at(i, j); }},
    // Key j-1 is scaled by f_j at query j. The first token has no predecessor to forget.
    {forget_gates, &AttentionTrace::decay,
     [](const Square& decay, std::size_t, std::size_t j) -> std::optional<double> {
       return j == 0 ? std::nullopt : std::optional(1 - decay.at(j, j - 1));
     }},
    // A query has no break for its own key unless it may attend to itself; otherwise the share there is exactly 0.
    {stick_breaks, &AttentionTrace::breaks,
     [](const Square& share, std::size_t i, std::size_t j) -> std::optional<double> {
       return i == j && share.at(i, j) == 0 ? std::nullopt : std::optional(share.at(i, j));
     }},
};
constexpr std::size_t kinds = std::size(gate_sources);

class HeadMeans {
 public:
  void add_gates(std::size_t kind, const Square& square, const Reading& reading) {
    for (std::size_t i = 0; i < reading.length; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        const std::optional<double> gate = gate_sources[kind].read(square, i, j);
        if (gate) gates_[kind].add(reading.roles[j], *gate, (*reading.scored)[i] != 0);
      }
    }
  }

  // `positions` has no values if the head has none.
  void add_attention(const Square& weights, const Square& positions, const Reading& reading, std::size_t roles) {
    for (std::size_t i = 0; i < reading.length; ++i) {
      std::vector<double> given(roles, 0.0);
      for (std::size_t j = 0; j <= i; ++j) given[reading.roles[j]] += weights.at(i, j);
      const bool scored = (*reading.scored)[i] != 0;
      for (std::size_t role = 0; role < roles; ++role) attention_.add(role, given[role], scored);
      if (!scored || reading.sources[i] < 0) continue;
      const auto source = static_cast<std::size_t>(reading.sources[i]);
      source_attention_.add(weights.at(i, source));
      if (positions.values != nullptr) source_position_.add(positions.at(i, source));
    }
  }

  HeadExplanation result(std::int64_t layer, std::int64_t head, std::size_t roles) const {
    HeadExplanation told{layer, head, attention_.result(roles), source_attention_.result(), source_position_.result(),
                         {}};
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      MeansByRole means = gates_[kind].result(roles);
      // A head without a gate that others in the layer have holds zeros; real gates are not 0 in all pairs.
      const bool has =
          std::any_of(means.all.begin(), means.all.end(), [](const MeanDeviation& m) { return m.mean > 0; });
      if (!has) continue;
      std::vector<std::size_t> open = open_roles(means.scored);
      told.gates.push_back({gate_sources[kind].kind, std::move(means), std::move(open)});
    }
    return told;
  }

 private:
  RoleMeans gates_[kinds], attention_;
  RunningMean source_attention_, source_position_;
};

// [B, H, T, T] on the host as doubles; empty for an undefined tensor.
std::vector<double> values_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.to(Device{}).to(DType::f64).to_vector<double>() : std::vector<double>{};
}

}  // namespace

std::vector<std::size_t> open_roles(const std::vector<MeanDeviation>& by_role) {
  constexpr double open = 0.9, closed = 0.1, least = 0.1;
  double largest = 0;
  for (const MeanDeviation& mean : by_role) largest = std::max(largest, mean.mean);
  std::vector<std::size_t> roles;
  bool others = false;
  for (std::size_t role = 0; role < by_role.size(); ++role) {
    if (by_role[role].n == 0) continue;
    if (by_role[role].mean >= open * largest) {
      roles.push_back(role);
    } else if (by_role[role].mean <= closed * largest) {
      others = true;
    } else {
      return {};
    }
  }
  return others && largest >= least ? roles : std::vector<std::size_t>{};
}

Explanation explain(SequenceModel& model, const Task& task, const std::vector<Example>& examples, std::int64_t batch) {
  Explanation told;
  std::map<std::string, std::size_t> number;  // of a role
  std::vector<Reading> readings;
  for (const Example& example : examples) {
    Reading reading{example.tokens.size(), {}, task.sources(example), &example.score_mask};
    for (std::string& role : task.roles(example)) {
      const auto [known, is_new] = number.try_emplace(role, told.roles.size());
      if (is_new) told.roles.push_back(std::move(role)), told.role_counts.push_back(0);
      ++told.role_counts[known->second];
      reading.roles.push_back(known->second);
    }
    readings.push_back(std::move(reading));
  }

  std::vector<std::vector<HeadMeans>> heads;  // by layer
  const auto count = static_cast<std::int64_t>(examples.size());
  for (std::int64_t begin = 0; begin < count; begin += batch) {
    const std::int64_t end = std::min(begin + batch, count);
    const Batch now = collate({examples.begin() + begin, examples.begin() + end});
    const TracedPass pass = trace_pass(model, now, false);
    add_scores(told.evaluation, argmax(pass.logits.detach()), now);
    const auto width = static_cast<std::size_t>(now.tokens.size(1));
    heads.resize(pass.layers.size());
    for (std::size_t layer = 0; layer < pass.layers.size(); ++layer) {
      const AttentionTrace& trace = pass.layers[layer];
      if (!trace.weights.defined()) continue;  // a custom attention has no weights
      const auto heads_here = static_cast<std::size_t>(trace.weights.size(1));
      heads[layer].resize(heads_here);
      const auto each_head = [&](const std::vector<double>& values, const auto& take) {
        for (std::int64_t n = begin; !values.empty() && n < end; ++n) {
          for (std::size_t head = 0; head < heads_here; ++head) {
            const std::size_t before = static_cast<std::size_t>(n - begin) * heads_here + head;
            take(heads[layer][head], before * width * width, readings[static_cast<std::size_t>(n)]);
          }
        }
      };
      const std::vector<double> weights = values_of(trace.weights), positions = values_of(trace.positions);
      each_head(weights, [&](HeadMeans& head, std::size_t offset, const Reading& reading) {
        const Square none{nullptr, width};
        head.add_attention({weights.data() + offset, width},
                           positions.empty() ? none : Square{positions.data() + offset, width}, reading,
                           told.roles.size());
      });
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        const std::vector<double> gates = values_of(trace.*gate_sources[kind].tensor);
        each_head(gates, [&](HeadMeans& head, std::size_t offset, const Reading& reading) {
          head.add_gates(kind, {gates.data() + offset, width}, reading);
        });
      }
    }
  }
  for (std::size_t layer = 0; layer < heads.size(); ++layer) {
    for (std::size_t head = 0; head < heads[layer].size(); ++head) {
      told.heads.push_back(heads[layer][head].result(static_cast<std::int64_t>(layer), static_cast<std::int64_t>(head),
                                                     told.roles.size()));
    }
  }
  return told;
}

}  // namespace tally
