// What `tally bench` can measure, or plan: the work, and the columns of its table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/checks/bench.hpp"
#include "tasks/checks/estimate.hpp"

namespace tally {

std::string fixed(double value, int digits);

// A cell of the table from the figures of a line.
struct Column {
  std::string title;
  std::function<std::string(const JsonValue& figures)> cell;
};

using Figures = std::vector<JsonValue>;

struct Work {
  std::string name, help;
  std::vector<Column> columns;
  Figures (*measure)(const BenchOptions& options);
  MemoryEstimate (*estimate)(const BenchOptions& options);  // null where nothing is run
};
// step, attention, ops and size.
const std::vector<Work>& works();
// What is counted of attention where nothing is run.
Work planned_attention();

ModelSetting model_of(const BenchOptions& o);
// As it is computed: an encoding may have attention written out though tiles were asked for.
std::string form_of(const std::string& what, const BenchOptions& o);
// What all figures begin with.
JsonValue sizes_json(const std::string& what, const BenchOptions& o);

// What a step would take, with nothing run; the same of attention, whose encoding has all its parameters.
Figures plan_step(const BenchOptions& o);
Figures plan_attention(const BenchOptions& o);

// Of steps: their rate beside that of a matrix product. Measured last: its matrices would count in the memory of the
// process.
void add_shares(Figures& figures);

}  // namespace tally
