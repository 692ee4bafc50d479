#include "tasks/inspect/explain.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
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

namespace {

// "0.98 (0.01)"; "-" for none. Attention that is mixed after the softmax may be negative.
ResultCell cell(const MeanDeviation& mean) {
  if (mean.n == 0) return {"-", JsonValue()};
  char text[64];
  std::snprintf(text, sizeof text, "%.3g (%.2g)", std::abs(mean.mean) < 5e-4 ? 0 : mean.mean,
                mean.deviation < 5e-4 ? 0 : mean.deviation);
  return {text, mean_json(mean)};
}

std::string head_name(const HeadExplanation& head) { return formatted("layer {} head {}", head.layer, head.head); }

const std::vector<MeanDeviation>& of(const MeansByRole& means, Queries queries) {
  return queries == Queries::scored ? means.scored : means.all;
}

std::string names_of(const std::vector<std::size_t>& roles, const Explanation& explanation) {
  std::string text;
  for (const std::size_t role : roles) text += formatted("{}{}", text.empty() ? "" : ", ", explanation.roles[role]);
  return text;
}

// Roles that have a column: the most frequent among the tokens, in order of first occurrence.
std::vector<std::size_t> columns_of(const std::vector<MeanDeviation>& means, const Explanation& explanation,
                                    std::size_t most) {
  const std::vector<std::int64_t>& counts = explanation.role_counts;
  std::vector<std::size_t> columns(means.size());
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  std::erase_if(columns, [&](std::size_t role) { return means[role].n == 0; });
  std::stable_sort(columns.begin(), columns.end(), [&](auto a, auto b) { return counts[a] > counts[b]; });
  columns.resize(std::min(columns.size(), most));
  std::sort(columns.begin(), columns.end());
  return columns;
}

// A table with a row for each head, and these roles as columns. Rows are added below.
ResultTable table_of(std::string title, const std::vector<std::size_t>& columns, std::size_t roles,
                     const Explanation& explanation) {
  if (columns.size() < roles) {
    title += formatted("; {} of {} kinds of keys, the commonest; --json has all", columns.size(), roles);
  }
  ResultTable table{std::move(title), {{"head", "layer_head"}}};
  for (const std::size_t role : columns) table.columns.push_back({explanation.roles[role]});
  return table;
}

std::vector<ResultCell>& add_row(ResultTable& table, const HeadExplanation& head,
                                 const std::vector<std::size_t>& columns, const std::vector<MeanDeviation>& means) {
  std::vector<ResultCell>& row = table.rows.emplace_back(1, head_name(head));
  for (const std::size_t role : columns) row.push_back(cell(means[role]));
  return row;
}

// The table of one kind of gate, for every head that has it. Without rows if there is none.
ResultTable gates_table(const GateKind& kind, const Explanation& explanation, Queries queries, std::size_t most) {
  ResultTable table;
  std::vector<std::size_t> columns;
  std::map<std::string, std::int64_t> open;  // heads, by the roles on which they are open
  for (const HeadExplanation& head : explanation.heads) {
    for (const HeadGates& gates : head.gates) {
      if (gates.kind.name != kind.name) continue;
      const std::vector<MeanDeviation>& means = of(gates.values, queries);
      if (table.rows.empty()) {
        columns = columns_of(means, explanation, most);
        const auto roles = std::ranges::count_if(means, [](const MeanDeviation& mean) { return mean.n > 0; });
        table = table_of(formatted("{}: {}; mean (deviation) over {} queries and the keys before, by key", kind.name,
                                   kind.formula, queries == Queries::scored ? "scored" : "all"),
                         columns, static_cast<std::size_t>(roles), explanation);
        table.columns.push_back({"open on", "open_on"});
      }
      const std::string names = names_of(queries == Queries::scored ? gates.open_on : open_roles(means), explanation);
      add_row(table, head, columns, means).push_back(names);
      if (!names.empty()) ++open[names];
    }
  }
  for (const auto& [names, count] : open) {
    table.notes.push_back(formatted("{} of {} heads are open on {} alone", count, table.rows.size(), names));
  }
  return table;
}

ResultTable attention_table(const Explanation& explanation, Queries queries, std::size_t most) {
  const std::vector<HeadExplanation>& heads = explanation.heads;
  const auto any = [&](MeanDeviation HeadExplanation::*mean) {
    return queries == Queries::scored &&
           std::ranges::any_of(heads, [&](const HeadExplanation& head) { return (head.*mean).n > 0; });
  };
  const bool sources = any(&HeadExplanation::source_attention), positions = any(&HeadExplanation::source_position);
  const std::vector<std::size_t> columns = columns_of(of(heads.front().attention, queries), explanation, most);
  ResultTable table =
      table_of(formatted("attention: what {} query gives to all keys of a kind together; mean (deviation) over queries",
                         queries == Queries::scored ? "a scored" : "a"),
               columns, explanation.roles.size(), explanation);
  if (sources) table.columns.push_back({"the answer's token", "source_attention"});
  if (positions) table.columns.push_back({"its position", "source_position"});
  for (const HeadExplanation& head : heads) {
    std::vector<ResultCell>& row = add_row(table, head, columns, of(head.attention, queries));
    if (sources) row.push_back(cell(head.source_attention));
    if (positions) row.push_back(cell(head.source_position));
  }
  return table;
}

std::vector<ResultTable> explanation_tables(const Explanation& explanation, Queries queries, std::size_t most) {
  std::vector<ResultTable> tables;
  for (const GateKind& kind : {contextual_gates, forget_gates, stick_breaks}) {
    ResultTable table = gates_table(kind, explanation, queries, most);
    if (!table.rows.empty()) tables.push_back(std::move(table));
  }
  if (!explanation.heads.empty()) tables.push_back(attention_table(explanation, queries, most));
  return tables;
}

}  // namespace

std::string explanation_text(const Explanation& explanation, Queries queries) {
  constexpr std::size_t most_columns = 12;
  if (explanation.heads.empty()) return "no head left its attention weights\n";
  return text_of(explanation_tables(explanation, queries, most_columns));
}

JsonValue explanation_json(const Explanation& explanation) {
  const auto all_of = [&](Queries queries) {
    return json_of(explanation_tables(explanation, queries, std::numeric_limits<std::size_t>::max()));
  };
  return JsonValue::object({{"scored", all_of(Queries::scored)}, {"all", all_of(Queries::all)}});
}

}  // namespace tally
