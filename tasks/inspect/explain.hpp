// Explains the heads of a trained model by measurements on sequences: means over pairs of a query and a key visible to
// it, grouped by the role of the key (Task::roles). `tally inspect` prints them; tasks/explained.md explains how to
// read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/model.hpp"
#include "tasks/data/task.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/print/table.hpp"

namespace tally {

// A kind of gate of a head, a number from 0 to 1 for query i and key j <= i.
struct GateKind {
  std::string_view name, formula;
};
inline constexpr GateKind contextual_gates{"gates", "g_ij, what key j adds to the positions of all before it"};
inline constexpr GateKind forget_gates{"forgets", "1 - f_j, the share of all before it that token j has forgotten"};
inline constexpr GateKind stick_breaks{"breaks", "the share that key j takes of what is left of the stick"};

// Means by role: over the scored queries, and over all.
struct MeansByRole {
  std::vector<MeanDeviation> scored, all;
};

struct HeadGates {
  GateKind kind;
  MeansByRole values;                // n: pairs
  std::vector<std::size_t> open_on;  // roles, see open_roles, at scored queries
};

struct HeadExplanation {
  std::int64_t layer = 0, head = 0;
  MeansByRole attention;           // total attention of a query to all keys of a role; n: queries
  MeanDeviation source_attention;  // attention of a scored query to the token with its answer (Task::sources),
  MeanDeviation source_position;   // and the contextual position of that token; n: queries, 0 if there is none
  std::vector<HeadGates> gates;    // only the kinds that the head has
};

struct Explanation {
  std::vector<std::string> roles;         // in order of first occurrence
  std::vector<std::int64_t> role_counts;  // tokens of each
  std::vector<HeadExplanation> heads;
  Evaluation evaluation;  // on the same sequences
};

// Roles on which gates are open, if gates distinguish roles. Such a role's mean is at least 0.9 of the largest mean,
// which is at least 0.1, and every other role has at most 0.1 of the largest. Empty otherwise, or when there are no
// other roles. A head that is open only on w counts writes.
std::vector<std::size_t> open_roles(const std::vector<MeanDeviation>& by_role);

// The model reads `batch` sequences at a time with reference attention.
Explanation explain(SequenceModel& model, const Task& task, const std::vector<Example>& examples, std::int64_t batch);

// The queries to report.
enum class Queries { scored, all };

// Tables in Markdown, one for each kind of gate and one for attention. Rare roles are omitted, with a note.
std::string explanation_text(const Explanation& explanation, Queries queries);
// {"scored": tables, "all": tables}: the same tables with all roles, for both kinds of queries.
JsonValue explanation_json(const Explanation& explanation);

}  // namespace tally
