// tally bench: how long a whole training step takes, a layer's attention alone, or the single operations of a step, and
// how many parameters a model has; tests/bench/README.md explains the figures.
#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>

#include "tasks/bench.hpp"
#include "tasks/estimate.hpp"
#include "tasks/machine.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/runner/grid.hpp"
#include "tasks/runner/progress.hpp"
#include "tasks/statistics.hpp"
#include "tasks/table.hpp"

namespace tally {
namespace {

struct BenchSettings {
  std::string what, task = "flip-flop", preset = "paper", encoding = "cope";
  std::vector<std::string> grid;  // "pe.cope.p-max=16,64"
  std::int64_t vocabulary = 0, steps = 5, warmup = 2;
  bool dry_run = false;
};

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

ModelSetting model_of(const BenchOptions& o) {
  return {o.config.model, o.config.encoding, o.vocabulary, o.max_length, o.config.dtype()};
}

// As it is computed: an encoding may have attention written out though tiles were asked for.
std::string form_of(const std::string& what, const BenchOptions& o) {
  return attention_form(model_of(o), what == "attention" ? 1 : o.config.model.layers);
}

// What all figures begin with.
JsonValue sizes_json(const std::string& what, const BenchOptions& o) {
  return JsonValue::object({{"work", what},
                            {"pe", o.config.encoding.text()},
                            {"width", o.config.model.width},
                            {"heads", o.config.model.heads},
                            {"attention", form_of(what, o)},
                            {"length", o.length},
                            {"batch", o.config.run.batch},
                            {"dtype", to_text(o.config.dtype())},
                            {"steps", o.steps},
                            {"warmup", o.warmup}});
}

// Cells of the tables, from the figures.
struct Column {
  std::string title;
  std::function<std::string(const JsonValue& figures)> cell;
};

Column count_of(std::string title, const std::string& name, const char* unit = "") {
  return {std::move(title), [=](const JsonValue& json) { return with_commas(json.integer(name)) + unit; }};
}
Column bytes_of(std::string title, const std::string& name) {
  return {std::move(title), [=](const JsonValue& json) { return bytes_text(json.real(name)); }};
}
Column text_of(std::string title) {
  return {title, [=](const JsonValue& json) { return json.string(title); }};
}
// "1.234 ms (1.200-1.300)"; empty where it was not measured.
Column times_of(std::string title, const std::string& median, const std::string& least, const std::string& most) {
  return {std::move(title), [=](const JsonValue& json) {
            if (!json.contains(median)) return std::string();
            const auto ms = [&](const std::string& name) { return fixed(1e3 * json.real(name), 3); };
            return concat(ms(median), " ms (", ms(least), "-", ms(most), ")");
          }};
}
Column times_of(const std::string& name) { return times_of(name, name + "_s", name + "_min_s", name + "_max_s"); }
Column rate_of(const std::string& name) {
  return {"rate", [=](const JsonValue& json) {
            for (const auto& [key, unit] : {std::pair{"_gflop_per_s", " GFLOP/s"}, {"_gb_per_s", " GB/s"}}) {
              if (json.contains(name + key)) return fixed(json.real(name + key), 1) + unit;
            }
            return std::string();
          }};
}
const Column tensors = count_of("tensors", "tensor_peak_mib", " MiB");
const Column process = count_of("process", "peak_rss_mib", " MiB");

using Figures = std::vector<JsonValue>;

// The figures of one, behind its sizes.
Figures with_sizes(const std::string& what, const BenchOptions& o, const JsonValue& measured) {
  JsonValue json = sizes_json(what, o);
  for (const JsonMember& member : measured.members()) json.set(member.name, member.value);
  return {json};
}

// Measured last: its matrices would count in the memory of the process.
void add_shares(Figures& figures) {
  std::map<std::string, double, std::less<>> rates;  // by type
  for (JsonValue& json : figures) {
    const std::string dtype = json.string("dtype");
    if (!rates.contains(dtype)) rates[dtype] = bench_gemm(dtype == "f64" ? DType::f64 : DType::f32);
    const double gemm = rates.at(dtype);
    json.set("gemm_gflop_per_s", gemm);
    json.set("share_of_gemm", json.real("gflop") / json.real("step_s") / gemm);
  }
}

// Throws Error where it cannot be counted, or an encoding does not take the sequences.
MemoryEstimate checked(const BenchOptions& o, MemoryEstimate memory) {
  check(!memory.more, "memory", "this needs more than ", bytes_text(memory.total()));
  check_length(model_of(o), o.length);
  return memory;
}

MemoryEstimate estimate_step(const BenchOptions& o) { return estimate_step(model_of(o), o.config, o.length); }

// What a step would take, with nothing run.
Figures plan_step(const BenchOptions& o) {
  const MemoryEstimate memory = as_usage([&] { return checked(o, estimate_step(o)); });
  const double parameters = static_cast<double>(memory.parameter_count);
  return with_sizes("size", o,
                    JsonValue::object({{"vocab", o.vocabulary},
                                       {"layers", o.config.model.layers},
                                       {"parameters", memory.parameter_count},
                                       {"encoding_parameters", memory.encoding_parameter_count},
                                       {"parameter_bytes", parameters * static_cast<double>(size_of(o.config.dtype()))},
                                       {"memory_bytes", memory.total()}}));
}

// The same of attention, whose encoding has all its parameters.
Figures plan_attention(const BenchOptions& o) {
  return as_usage([&] {
    std::int64_t parameters = 0;
    for (const auto& [name, shape] : parameter_shapes(o.config.model, o.config.encoding, o.vocabulary, o.max_length)) {
      if (name.starts_with("position.") || name.starts_with("blocks.0.position.")) parameters += shape.numel();
    }
    const double memory = checked(o, estimate_attention(o)).total();
    return with_sizes("attention", o,
                      JsonValue::object({{"encoding_parameters", parameters}, {"memory_bytes", memory}}));
  });
}

struct Work {
  std::string name, help;
  std::vector<Column> columns;
  Figures (*measure)(const BenchOptions& options);
  MemoryEstimate (*estimate)(const BenchOptions& options);  // null where nothing is run
};

const std::vector<Work>& works() {
  static const std::vector<Work> all{
      {"step",
       "the training step of 'tally train'",
       {times_of("step", "step_s", "min_s", "max_s"),
        count_of("tokens/s", "tokens_per_s"),
        tensors,
        process,
        {"of gemm's rate", [](const JsonValue& json) { return percent_text(json.real("share_of_gemm")); }}},
       [](const BenchOptions& o) { return with_sizes("step", o, bench_step(o)); },
       estimate_step},
      {"attention",
       "a layer's attention alone, forward and backward",
       {times_of("forward"), rate_of("forward"), times_of("backward"), rate_of("backward"), times_of("both"), tensors,
        process},
       [](const BenchOptions& o) { return with_sizes("attention", o, bench_attention(o)); },
       estimate_attention},
      {"ops",
       "single operations at the model's shapes",
       {text_of("operation"), text_of("shape"), times_of("forward"), rate_of("forward"), times_of("backward"),
        rate_of("backward")},
       bench_operations,
       estimate_operations},
      {"size",
       "number of parameters, and memory of a step, with nothing run",
       {count_of("parameters", "parameters"), count_of("of the encoding", "encoding_parameters"),
        bytes_of("parameters in memory", "parameter_bytes"), bytes_of("memory of a step", "memory_bytes")},
       plan_step,
       nullptr}};
  return all;
}

Work find_work(const BenchSettings& settings) {
  std::vector<std::string> names;
  for (const Work& work : works()) {
    names.push_back(work.name);
    if (work.name != settings.what) continue;
    if (!settings.dry_run || work.name == "size") return work;
    if (work.name == "step") return works().back();
    if (work.name == "ops") throw UsageError("[bench] --dry-run is for step and attention");
    return {work.name,
            work.help,
            {count_of("parameters of the encoding", "encoding_parameters"), bytes_of("memory", "memory_bytes")},
            plan_attention,
            nullptr};
  }
  throw UsageError(concat("[bench] there are step, attention, ops and size, not '", settings.what, "'",
                          did_you_mean(settings.what, names)));
}

// One combination of --set.
BenchOptions make_options(const BenchSettings& settings, RunConfig config, const Settings& combination) {
  return as_usage([&] {
    for (const auto& [name, value] : combination) config.set(name, value);
    config.validate();
    config.refuse_idle();
    BenchOptions options(std::move(config));
    if (settings.vocabulary > 0) options.vocabulary = settings.vocabulary;
    options.steps = settings.steps;
    options.warmup = settings.warmup;
    return options;
  });
}

// Whether a task whose option is as usual gives other sequences: of other lengths, symbols or number.
bool changes_sizes(const RunConfig::Field& field, const BenchOptions& with, bool symbols) {
  RunConfig given = with.config.clone();
  given.run.batch = std::numeric_limits<std::int32_t>::max();  // of which there are as many as sequences
  try {
    RunConfig usual = given.clone();
    usual.set(field.name, to_text(field.option.value));
    const BenchOptions here(std::move(given)), there(std::move(usual));
    return here.length != there.length || here.max_length != there.max_length ||
           here.config.run.batch != there.config.run.batch || (symbols && here.vocabulary != there.vocabulary);
  } catch (const Error&) {
    return true;  // the others do not fit to it
  }
}

// Whether what is counted differs where the option is as usual.
bool changes_plan(const RunConfig::Field& field, const BenchOptions& with, Figures (*plan)(const BenchOptions&)) {
  RunConfig usual = with.config.clone();
  try {
    usual.set(field.name, to_text(field.option.value));
    BenchOptions there(std::move(usual));
    there.vocabulary = with.vocabulary;
    return write_json(plan(with).front()) != write_json(plan(there).front());
  } catch (const Error&) {
    return true;
  }
}

// Whether an option of a configuration changes nothing in that work: nothing that is timed or, where it is planned
// alone, counted. A step depends on all of them.
bool is_idle(const std::string& what, bool planned, const RunConfig::Field& field, const BenchOptions& with) {
  const std::string& name = field.name;
  const auto one_of = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::count(names, name) > 0;
  };
  const bool attention = what == "attention";
  if (!attention && !planned) return false;
  if (name.starts_with("task.")) return !changes_sizes(field, with, !attention);
  if (name.starts_with("optimiser.")) return attention || !one_of({"optimiser.name", "optimiser.momentum"});
  if (one_of({"seed", "data-seed"})) return true;
  if (planned && one_of({"model.init", "model.norm-eps", "model.dropout"})) return true;
  // Biases of attention are those of its encoding's projections.
  const bool of_encoding = (planned && name.starts_with("pe.")) || (attention && name == "model.bias");
  if (of_encoding) return !changes_plan(field, with, attention ? plan_attention : plan_step);
  if (!attention) return false;
  if (name == "model.layers") return with.config.encoding.least_layers() == 1;
  return one_of({"model.hidden", "model.norm", "model.norm-eps", "model.norm-place", "model.residual",
                 "model.activation", "model.tied", "model.final-norm"});
}

// `given`: on the command line and by --set; what says what the configuration has anyway passes.
void refuse_idle(const BenchSettings& settings, bool planned, const RunConfig& usual, const Settings& given,
                 const BenchOptions& with) {
  const std::string what = concat(settings.what, planned && settings.what != "size" ? " --dry-run" : "");
  const auto refuse = [&](std::string_view name, std::string_view wants) {
    throw UsageError(concat("[bench] --", name, " has no effect on ", what, "; it is for ", wants));
  };
  if (settings.what == "size" && settings.dry_run) refuse("dry-run", "step and attention");
  if (planned && settings.steps != BenchSettings().steps) refuse("steps", "what is timed");
  if (planned && settings.warmup != BenchSettings().warmup) refuse("warmup", "what is timed");
  for (const RunConfig::Field& field : usual.fields()) {
    for (const auto& [name, value] : given) {
      if ((name != field.name && name != field.alias) || value == to_text(field.option.value)) continue;
      if (is_idle(settings.what, planned, field, with)) refuse(field.name, "step");
    }
  }
}

std::string title(const Work& work, const BenchOptions& o) {
  const ModelOptions& m = o.config.model;
  const std::string model = concat(work.name, " with ", o.config.encoding.text(), ": ",
                                   work.name == "attention" ? "" : concat(m.layers, " layers, "), "width ", m.width,
                                   ", ", m.heads, " heads, ");
  const bool planned = work.estimate == nullptr;
  return concat(model, planned ? concat(o.vocabulary, " symbols, ") : "", o.config.run.batch, " x ", o.length,
                " tokens, ", o.config.dtype(), ", attention ", form_of(work.name, o),
                planned ? "" : concat("; medians of ", o.steps, " runs (shortest to longest)"), "\n\n");
}

// For every combination of --set: a line each, or one JSON object.
Result run_bench(const BenchSettings& settings, const RunConfig& usual, const ConfigOptions& options,
                 const CommonOptions& common) {
  RunConfig config = usual.clone();
  options.apply(config);
  const Work work = find_work(settings);
  const bool operations = work.name == "ops";
  const std::vector<GridDimension> grid = parse_grid(settings.grid);
  if (operations && !grid.empty()) throw UsageError("[bench] --set is for step, attention and size");
  if (settings.vocabulary > 0 && !operations && settings.what != "size") {
    throw UsageError(concat("[bench] --vocab has no effect on ", settings.what, "; it is for ops and size"));
  }
  const std::vector<Settings> all = combinations(grid);
  std::vector<BenchOptions> variants;  // made before anything is measured: a wrong value is wrong usage
  for (const Settings& combination : all) variants.push_back(make_options(settings, config.clone(), combination));
  for (std::size_t n = 0; n < variants.size(); ++n) {
    const BenchOptions& variant = variants[n];
    if ((settings.what == "attention" || operations) && !variant.config.model.is_transformer()) {
      throw UsageError(concat("[bench] ", settings.what, " is for transformers: a model of kind ",
                              variant.config.model.kind, " has no attention"));
    }
    if (work.estimate != nullptr) {
      check_fits(as_usage([&] {
        MemoryEstimate estimate = work.estimate(variant);
        check_length(model_of(variant), variant.length);
        return estimate;
      }));
    }
    Settings given = options.given();
    given.insert(given.end(), all[n].begin(), all[n].end());
    refuse_idle(settings, work.estimate == nullptr, usual, given, variant);
  }

  Figures figures;
  for (std::size_t n = 0; n < variants.size(); ++n) {
    for (JsonValue& line : work.measure(variants[n])) {
      if (line.contains("tensor_peak_mib")) line.set("peak_rss_mib", peak_rss_mib());
      for (const auto& [name, value] : all[n]) line.set(name, value);
      figures.push_back(std::move(line));
    }
  }
  if (work.name == "step") add_shares(figures);

  TableRows rows(1);
  for (const GridDimension& dimension : grid) rows[0].push_back(dimension.key);
  for (const Column& column : work.columns) rows[0].push_back(column.title);
  for (const JsonValue& line : figures) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const GridDimension& dimension : grid) row.push_back(line.string(dimension.key));
    for (const Column& column : work.columns) row.push_back(column.cell(line));
  }
  std::string text = common.quiet ? "" : concat(Machine::here().text(), "\n", title(work, variants.front()));
  text += markdown_table(rows);
  JsonValue json = operations ? sizes_json(work.name, variants.front()) : JsonValue::object({{"work", work.name}});
  if (!operations && grid.empty()) {
    json = figures.front();
  } else {
    json.set(operations ? "operations" : "variants", JsonValue(std::move(figures)));
  }
  if (operations) json.set("peak_rss_mib", peak_rss_mib());
  json.set("machine", Machine::here().to_json());
  return {.value = std::move(json), .text = std::move(text)};
}

// Of a run's own options those that a step depends on.
bool is_wanted(std::string_view name) {
  return name.find('.') != std::string_view::npos || name == "batch" || name == "seed" || name == "data-seed" ||
         name == "dtype";
}

}  // namespace

std::function<Result()> declare_bench(CommandLine& line) {
  const auto settings = std::make_shared<BenchSettings>();
  std::string help;
  for (const Work& work : works()) help += concat(help.empty() ? "" : "; ", work.name, ": ", work.help);
  line.add("WHAT", &settings->what, help, {.required = true});
  line.add("--task", &settings->task, "whose batches a step trains on");
  line.add("--preset", &settings->preset, "the task's settings");
  line.add("--pe", &settings->encoding, "position encoding, a sum, or what acts where (as in 'tally train')");
  line.add("--vocab", &settings->vocabulary, "symbols V of ops and size; 0: the task's", {.least = 0, .most = 1 << 24});
  line.add("--steps", &settings->steps, "runs that are measured", {.least = 1, .most = 1 << 24});
  line.add("--warmup", &settings->warmup, "runs before those", {.least = 0, .most = 1 << 24});
  line.add("--set", &settings->grid,
           "key=value,value: measure with each of these values of an option; may be given several times");
  line.add("--dry-run", &settings->dry_run,
           "run nothing: print parameters and memory, for attention those of the encoding and of the layer");
  const auto config = std::make_shared<RunConfig>(as_usage([&] {
    const auto given = [&](const char* name, const std::string& usual) {
      const std::string value = line.look_ahead(name);
      return value.empty() ? usual : value;
    };
    return RunConfig::make(given("--task", settings->task), given("--pe", settings->encoding),
                           given("--preset", settings->preset));
  }));
  const auto options = ConfigOptions::declare_for(line, *config, is_wanted);
  return [settings, options, config, &common = line.common] { return run_bench(*settings, *config, *options, common); };
}

}  // namespace tally
