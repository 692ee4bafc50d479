// What the heads of a trained model do, measured on sequences: means over pairs of a query and a key that it sees, by
// what the key is (Task::roles). `tally explain` prints it, tasks/explained.md tells how to read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "nn/model.hpp"
#include "tasks/data/task.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {

// One kind of gate that a head has, a number from 0 to 1 for query i and key j <= i.
struct GateKind {
  std::string_view name, formula;
};
inline constexpr GateKind contextual_gates{"gates", "g_ij, what key j adds to the positions of all before it"};
inline constexpr GateKind forget_gates{"forgets", "1 - f_j, the share of all before it that token j has forgotten"};
inline constexpr GateKind stick_breaks{"breaks", "the share that key j takes of what is left of the stick"};

// Means by role: over the queries at which something is scored, and over all.
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
  MeansByRole attention;           // what a query gives to all keys of a role together; n: queries
  MeanDeviation source_attention;  // what a scored query gives to the token that holds its answer (Task::sources),
  MeanDeviation source_position;   // and the contextual position of that; n: queries, 0 where there is no such thing
  std::vector<HeadGates> gates;    // of the kinds that the head has
};

struct Explanation {
  std::vector<std::string> roles;         // in the order in which they first come
  std::vector<std::int64_t> role_counts;  // tokens of each
  std::vector<HeadExplanation> heads;
  Evaluation evaluation;  // on the same sequences
};

// Roles on which gates are open, if they tell roles apart: those whose mean is at least 0.9 of the largest, if that is
// at least 0.1 and all other roles have at most 0.1 of it. Empty otherwise, and when there are no others. A head that
// is open on w alone counts writes.
std::vector<std::size_t> open_roles(const std::vector<MeanDeviation>& by_role);

// The model reads the sequences `batch` at a time, its attention written out.
Explanation explain(SequenceModel& model, const Task& task, const std::vector<Example>& examples, std::int64_t batch);

// Which queries a text is about.
enum class Queries { scored, all };

// Tables in Markdown, one for each kind of gate and one of attention; roles beyond the commonest are left out, and said
// to be.
std::string explanation_text(const Explanation& explanation, Queries queries);
// {"roles": [...], "heads": [{"layer", "head", "attention": {"scored": {role: {"mean", "deviation", "n"}}, "all": ...},
//  "source_attention", "source_position", "gates": [{"kind", "scored", "all", "open_on": [role]}]}], "evaluation"}
JsonValue explanation_json(const Explanation& explanation);

}  // namespace tally
