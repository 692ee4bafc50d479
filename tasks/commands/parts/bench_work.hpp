// The works that `tally bench` can measure or plan, with the columns of their tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/checks/bench.hpp"
#include "tasks/checks/estimate.hpp"

namespace tally {

std::string fixed(double value, int digits);

// A table cell, computed from the figures of a line.
struct Column {
  std::string title;
  std::function<std::string(const JsonValue& figures)> cell;
};

using Figures = std::vector<JsonValue>;

struct Work {
  std::string name, help;
  std::vector<Column> columns;
  Figures (*measure)(const BenchOptions& options);
  MemoryEstimate (*estimate)(const BenchOptions& options);  // null for work that is only planned
};
// step and attention.
const std::vector<Work>& works();
// The planned figures of `work`. Nothing runs.
Work planned(const Work& work);

ModelSetting model_of(const BenchOptions& o);
// The attention that actually runs: some encodings need reference attention even if fused attention was requested.
std::string form_of(const std::string& what, const BenchOptions& o);
// The sizes at the beginning of all figures.
JsonValue sizes_json(const std::string& what, const BenchOptions& o);

// The memory of a step, planned without running it. plan_attention does the same for attention; its encoding has all
// its parameters.
Figures plan_step(const BenchOptions& o);
Figures plan_attention(const BenchOptions& o);

// For steps: adds their speed relative to a matmul. Call it last, because the matrices would count in the process's
// peak memory.
void add_shares(Figures& figures);

}  // namespace tally
