// Formats an explanation as tables and as JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "tasks/inspect/explain.hpp"
#include "tasks/print/table.hpp"

namespace tally {
namespace {

constexpr std::size_t most_columns = 12;

// "0.98 (0.01)"; "-" for none. Attention that is mixed after the softmax may be negative.
std::string cell(const MeanDeviation& mean) {
  if (mean.n == 0) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.3g (%.2g)", std::abs(mean.mean) < 5e-4 ? 0 : mean.mean,
                mean.deviation < 5e-4 ? 0 : mean.deviation);
  return text;
}

std::string head_name(const HeadExplanation& head) { return concat("layer ", head.layer, " head ", head.head); }

const std::vector<MeanDeviation>& of(const MeansByRole& means, Queries queries) {
  return queries == Queries::scored ? means.scored : means.all;
}

std::string names_of(const std::vector<std::size_t>& roles, const Explanation& explanation) {
  std::string text;
  for (const std::size_t role : roles) text += concat(text.empty() ? "" : ", ", explanation.roles[role]);
  return text;
}

// Roles that have a column: the most frequent among the tokens, in order of first occurrence.
std::vector<std::size_t> columns_of(const std::vector<MeanDeviation>& means, const Explanation& explanation) {
  const std::vector<std::int64_t>& counts = explanation.role_counts;
  std::vector<std::size_t> columns(means.size());
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  std::erase_if(columns, [&](std::size_t role) { return means[role].n == 0; });
  std::stable_sort(columns.begin(), columns.end(), [&](auto a, auto b) { return counts[a] > counts[b]; });
  columns.resize(std::min(columns.size(), most_columns));
  std::sort(columns.begin(), columns.end());
  return columns;
}

TableRows table_of(const std::vector<std::size_t>& columns, const Explanation& explanation) {
  TableRows rows{{"head"}};
  for (const std::size_t role : columns) rows.front().push_back(explanation.roles[role]);
  return rows;
}

std::string left_out(std::size_t columns, std::size_t roles) {
  return columns == roles ? "" : concat("; ", columns, " of ", roles, " kinds of keys, the commonest; --json has all");
}

// The table of one kind of gate, for every head that has it.
std::string gates_text(const GateKind& kind, const Explanation& explanation, Queries queries) {
  TableRows rows;
  std::vector<std::size_t> columns;
  std::map<std::string, std::int64_t> open;  // heads, by the roles on which they are open
  std::size_t heads = 0, roles = 0;
  for (const HeadExplanation& head : explanation.heads) {
    for (const HeadGates& gates : head.gates) {
      if (gates.kind.name != kind.name) continue;
      const std::vector<MeanDeviation>& means = of(gates.values, queries);
      if (rows.empty()) {
        columns = columns_of(means, explanation);
        rows = table_of(columns, explanation);
        rows.front().emplace_back("open on");
        roles = static_cast<std::size_t>(
            std::count_if(means.begin(), means.end(), [](const MeanDeviation& mean) { return mean.n > 0; }));
      }
      rows.push_back({head_name(head)});
      for (const std::size_t role : columns) rows.back().push_back(cell(means[role]));
      const std::string names = names_of(queries == Queries::scored ? gates.open_on : open_roles(means), explanation);
      rows.back().push_back(names);
      ++heads;
      if (!names.empty()) ++open[names];
    }
  }
  if (rows.empty()) return "";
  std::string text =
      concat(kind.name, ": ", kind.formula, "; mean (deviation) over ", queries == Queries::scored ? "scored" : "all",
             " queries and the keys before, by key", left_out(columns.size(), roles), "\n\n", markdown_table(rows));
  for (const auto& [names, count] : open)
    text += concat(count, " of ", heads, " heads are open on ", names, " alone\n");
  return text + "\n";
}

std::string attention_text(const Explanation& explanation, Queries queries) {
  if (explanation.heads.empty()) return "no head left its attention weights\n";
  const std::vector<HeadExplanation>& heads = explanation.heads;
  const auto any = [&](MeanDeviation HeadExplanation::*mean) {
    return queries == Queries::scored &&
           std::any_of(heads.begin(), heads.end(), [&](const HeadExplanation& head) { return (head.*mean).n > 0; });
  };
  const bool sources = any(&HeadExplanation::source_attention), positions = any(&HeadExplanation::source_position);
  const std::vector<std::size_t> columns = columns_of(of(heads.front().attention, queries), explanation);
  TableRows rows = table_of(columns, explanation);
  if (sources) rows.front().emplace_back("the answer's token");
  if (positions) rows.front().emplace_back("its position");
  for (const HeadExplanation& head : heads) {
    rows.push_back({head_name(head)});
    for (const std::size_t role : columns) rows.back().push_back(cell(of(head.attention, queries)[role]));
    if (sources) rows.back().push_back(cell(head.source_attention));
    if (positions) rows.back().push_back(cell(head.source_position));
  }
  return concat("attention: what ", queries == Queries::scored ? "a scored" : "a",
                " query gives to all keys of a kind together; mean (deviation) over queries",
                left_out(columns.size(), explanation.roles.size()), "\n\n", markdown_table(rows));
}

JsonValue mean_json(const MeanDeviation& mean) {
  return JsonValue::object({{"mean", mean.mean}, {"deviation", mean.deviation}, {"n", mean.n}});
}

JsonValue means_json(const std::vector<MeanDeviation>& means, const Explanation& explanation) {
  JsonValue by_role = JsonValue::object();
  for (std::size_t role = 0; role < means.size(); ++role) {
    if (means[role].n > 0) by_role.set(explanation.roles[role], mean_json(means[role]));
  }
  return by_role;
}

}  // namespace

std::string explanation_text(const Explanation& explanation, Queries queries) {
  std::string text;
  for (const GateKind& kind : {contextual_gates, forget_gates, stick_breaks}) {
    text += gates_text(kind, explanation, queries);
  }
  return text + attention_text(explanation, queries);
}

JsonValue explanation_json(const Explanation& explanation) {
  JsonValue roles = JsonValue::array(), heads = JsonValue::array();
  for (const std::string& role : explanation.roles) roles.push(role);
  for (const HeadExplanation& head : explanation.heads) {
    JsonValue gates = JsonValue::array();
    for (const HeadGates& own : head.gates) {
      JsonValue open = JsonValue::array();
      for (const std::size_t role : own.open_on) open.push(explanation.roles[role]);
      gates.push(JsonValue::object({{"kind", own.kind.name},
                                    {"scored", means_json(own.values.scored, explanation)},
                                    {"all", means_json(own.values.all, explanation)},
                                    {"open_on", std::move(open)}}));
    }
    JsonValue attention = JsonValue::object({{"scored", means_json(head.attention.scored, explanation)},
                                             {"all", means_json(head.attention.all, explanation)}});
    JsonValue told = JsonValue::object(
        {{"layer", head.layer}, {"head", head.head}, {"attention", std::move(attention)}, {"gates", std::move(gates)}});
    if (head.source_attention.n > 0) told.set("source_attention", mean_json(head.source_attention));
    if (head.source_position.n > 0) told.set("source_position", mean_json(head.source_position));
    heads.push(std::move(told));
  }
  return JsonValue::object({{"roles", std::move(roles)}, {"heads", std::move(heads)}});
}

}  // namespace tally
