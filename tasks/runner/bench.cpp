// tally bench: how long a whole training step takes, a layer's attention alone, or the single operations of a step, and
// how many parameters a model has;
// tests/bench/README.md explains the figures.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
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

constexpr std::int64_t largest_size = 1 << 24;
const std::vector<std::string> works{"step", "attention", "ops", "size"};

struct BenchSettings {
  std::string what = "step", encoding = "cope", dtype = "f32";
  std::vector<std::string> grid;  // "pe.cope.p-max=16,64"
  std::int64_t length = 512, batch = 16, vocabulary = 16, steps = 5, warmup = 2;
  bool dry_run = false;
};

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", 1e3 * seconds);
  return text;
}

std::string one_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// Billions a second.
double rate(double work, const Times& times) { return work > 0 && times.median > 0 ? work / times.median / 1e9 : 0; }

std::int64_t mebibytes(double bytes) { return std::llround(bytes / (1 << 20)); }

ModelSetting model_of(const BenchOptions& o) { return {o.model, o.encoding, o.vocabulary, o.length, o.dtype}; }

// As it is computed: an encoding may have attention written out though tiles were asked for.
std::string form_of(const std::string& what, const BenchOptions& o) {
  if (what != "step" && what != "attention") return o.model.attention;
  return attention_form(model_of(o), what == "step" ? o.model.layers : 1);
}

// What all figures begin with.
JsonValue sizes_json(const std::string& what, const BenchOptions& o) {
  return JsonValue::object({{"work", what},
                            {"pe", o.encoding.text()},
                            {"width", o.model.width},
                            {"heads", o.model.heads},
                            {"attention", form_of(what, o)},
                            {"length", o.length},
                            {"batch", o.batch},
                            {"dtype", to_text(o.dtype)},
                            {"steps", o.steps},
                            {"warmup", o.warmup}});
}

void set_times(JsonValue& json, const std::string& name, const Times& times) {
  json.set(name + "_s", times.median);
  json.set(name + "_min_s", times.min);
  json.set(name + "_max_s", times.max);
}

std::string times_text(const Times& times) {
  char text[96];
  std::snprintf(text, sizeof text, "%.3f ms (%.3f-%.3f)", 1e3 * times.median, 1e3 * times.min, 1e3 * times.max);
  return text;
}

// One combination of settings: its figures as JSON, and as cells of a table.
struct Figures {
  JsonValue json;
  std::vector<std::string> cells;
};

const std::vector<std::string> step_head{"step", "tokens/s", "tensors", "process", "of gemm's rate"};

Figures measure_step(const BenchOptions& o) {
  const StepTimes times = bench_step(o);
  const auto tokens_per_s = std::llround(static_cast<double>(o.batch * o.length) / times.step.median);
  Figures figures{sizes_json("step", o), {}};
  JsonValue& json = figures.json;
  json.set("vocab", o.vocabulary);
  json.set("layers", o.model.layers);
  json.set("parameters", times.parameters);
  json.set("step_s", times.step.median);
  json.set("min_s", times.step.min);
  json.set("max_s", times.step.max);
  json.set("tokens_per_s", tokens_per_s);
  json.set("gflop", times.flops / 1e9);
  json.set("tensor_peak_mib", mebibytes(times.tensor_bytes));
  json.set("peak_rss_mib", peak_rss_mib());
  json.set("system_allocations_per_step", times.system_allocations);
  figures.cells = {times_text(times.step), with_commas(tokens_per_s),
                   concat(with_commas(mebibytes(times.tensor_bytes)), " MiB"),
                   concat(with_commas(peak_rss_mib()), " MiB")};
  return figures;
}

// Measured last: its matrices would count in the memory of the process.
void add_shares(std::vector<Figures>& figures, DType dtype) {
  const double gemm = bench_gemm(dtype) / 1e9;
  for (Figures& one : figures) {
    const double share = one.json.real("gflop") / one.json.real("step_s") / gemm;
    one.json.set("gemm_gflop_per_s", gemm);
    one.json.set("share_of_gemm", share);
    one.cells.push_back(percent_text(share));
  }
}

const std::vector<std::string> attention_head{"forward", "GFLOP/s", "backward", "GFLOP/s",
                                              "both",    "tensors", "process"};

Figures measure_attention(const BenchOptions& o) {
  const AttentionTimes times = bench_attention(o);
  Figures figures{sizes_json("attention", o), {}};
  JsonValue& json = figures.json;
  set_times(json, "forward", times.forward);
  set_times(json, "backward", times.backward);
  set_times(json, "both", times.both);
  json.set("forward_gflop_per_s", rate(times.forward_flops, times.forward));
  json.set("backward_gflop_per_s", rate(times.backward_flops, times.backward));
  json.set("tokens_per_s", std::llround(static_cast<double>(o.batch * o.length) / times.both.median));
  json.set("tensor_peak_mib", mebibytes(times.tensor_bytes));
  json.set("peak_rss_mib", peak_rss_mib());
  figures.cells = {times_text(times.forward),
                   one_decimal(rate(times.forward_flops, times.forward)),
                   times_text(times.backward),
                   one_decimal(rate(times.backward_flops, times.backward)),
                   times_text(times.both),
                   concat(with_commas(mebibytes(times.tensor_bytes)), " MiB"),
                   concat(with_commas(peak_rss_mib()), " MiB")};
  return figures;
}

const std::vector<std::string> size_head{"parameters", "of the encoding", "parameters in memory"};

// From shapes alone: nothing of the model is there.
Figures count_parameters(const BenchOptions& o) {
  const NamedShapes shapes = as_usage([&] { return parameter_shapes(o.model, o.encoding, o.vocabulary, o.length); });
  const std::int64_t all = parameter_count(shapes), own = encoding_parameter_count(shapes);
  const double bytes = static_cast<double>(all) * static_cast<double>(size_of(o.dtype));
  Figures figures{sizes_json("size", o), {with_commas(all), with_commas(own), bytes_text(bytes)}};
  figures.json.set("vocab", o.vocabulary);
  figures.json.set("layers", o.model.layers);
  figures.json.set("parameters", all);
  figures.json.set("encoding_parameters", own);
  return figures;
}

const std::vector<std::string> attention_plan_head{"parameters of the encoding", "memory"};

// Of a layer's attention between its projections: the encoding has all its parameters.
Figures plan_attention(const BenchOptions& o) {
  std::int64_t parameters = 0;
  for (const auto& [name, shape] :
       as_usage([&] { return parameter_shapes(o.model, o.encoding, o.vocabulary, o.length); })) {
    if (name.starts_with("position.") || name.starts_with("blocks.0.position.")) parameters += shape.numel();
  }
  const double bytes = estimate_attention(o).total();
  Figures figures{sizes_json("attention", o), {with_commas(parameters), bytes_text(bytes)}};
  figures.json.set("encoding_parameters", parameters);
  figures.json.set("memory_bytes", bytes);
  return figures;
}

void set_size(std::int64_t& size, const std::string& name, const std::string& value) {
  const auto read = std::from_chars(value.data(), value.data() + value.size(), size);
  if (read.ec != std::errc() || read.ptr != value.data() + value.size() || size < 1 || size > largest_size) {
    throw UsageError(concat("[bench] ", name, " must be 1 to ", largest_size, ", got '", value, "'"));
  }
}

// One combination of --set. Model and encoding are options of a configuration, sizes are not.
BenchOptions make_options(BenchSettings settings, RunConfig config, const Settings& combination) {
  return as_usage([&] {
    for (const auto& [name, value] : combination) {
      if (name == "length") {
        set_size(settings.length, name, value);
      } else if (name == "batch") {
        set_size(settings.batch, name, value);
      } else {
        check(name.starts_with("model.") || name.starts_with("pe."), "bench",
              "--set knows length, batch, model.* and pe.*, not '", name, "'");
        config.set(name, value);
      }
    }
    config.validate();
    BenchOptions options;
    options.model = config.model;
    options.encoding = std::move(config.encoding);
    options.length = settings.length;
    options.batch = settings.batch;
    options.vocabulary = settings.vocabulary;
    options.steps = settings.steps;
    options.warmup = settings.warmup;
    options.dtype = settings.dtype == "f64" ? DType::f64 : DType::f32;
    return options;
  });
}

std::string title(const std::string& what, const BenchOptions& o, bool dry_run) {
  const std::string model =
      concat(what, " with ", o.encoding.text(), ": ", what == "attention" ? "" : concat(o.model.layers, " layers, "),
             "width ", o.model.width, ", ", o.model.heads, " heads, ");
  if (what == "size") return concat(model, o.vocabulary, " symbols, sequences of up to ", o.length, " tokens\n\n");
  const std::string measured = concat("; medians of ", o.steps, " runs (shortest to longest)");
  return concat(model, o.batch, " x ", o.length, " tokens, ", o.dtype, ", attention ", form_of(what, o),
                dry_run ? "" : measured, "\n\n");
}

struct Measurement {
  const std::vector<std::string>& head;
  Figures (*measure)(const BenchOptions& options);
  MemoryEstimate (*estimate)(const BenchOptions& options);  // null where nothing is run
};

Measurement measurement_of(const std::string& what, bool dry_run) {
  if (what == "step") {
    return {step_head, measure_step,
            [](const BenchOptions& o) { return estimate_step(model_of(o), bench_optimiser(), o.batch, o.length); }};
  }
  if (what == "attention") {
    return {dry_run ? attention_plan_head : attention_head, dry_run ? plan_attention : measure_attention,
            [](const BenchOptions& o) { return estimate_attention(o); }};
  }
  return {size_head, count_parameters, nullptr};
}

// Steps, attention or sizes, for every combination of --set: one line each, or one JSON object.
int run_variants(const BenchSettings& settings, const RunConfig& config, const CommonOptions& common) {
  const Measurement measurement = measurement_of(settings.what, settings.dry_run);
  const std::vector<GridDimension> grid = parse_grid(settings.grid);
  const std::vector<Settings> all = combinations(grid);
  std::vector<BenchOptions> variants;  // made before anything is measured: a wrong value is wrong usage
  for (const Settings& combination : all) variants.push_back(make_options(settings, config.clone(), combination));

  for (const BenchOptions& options : variants) {
    if (measurement.estimate == nullptr) continue;
    check_fits(as_usage([&] {
      MemoryEstimate estimate = measurement.estimate(options);
      check_length(model_of(options), options.length);
      return estimate;
    }));
  }

  std::vector<Figures> figures;
  for (const BenchOptions& options : variants) {
    figures.push_back(measurement.measure(options));
  }
  if (settings.what == "step") add_shares(figures, variants.front().dtype);

  TableRows rows(1);
  for (const GridDimension& dimension : grid) rows[0].push_back(dimension.key);
  rows[0].insert(rows[0].end(), measurement.head.begin(), measurement.head.end());
  JsonValue lines = JsonValue::array();
  for (std::size_t n = 0; n < variants.size(); ++n) {
    std::vector<std::string> row;
    for (const auto& [name, value] : all[n]) {
      row.push_back(value);
      figures[n].json.set(name, value);
    }
    row.insert(row.end(), figures[n].cells.begin(), figures[n].cells.end());
    rows.push_back(std::move(row));
    lines.push(std::move(figures[n].json));
  }
  if (common.json) {
    JsonValue json = grid.empty() ? lines.elements().front()
                                  : JsonValue::object({{"work", settings.what}, {"variants", std::move(lines)}});
    json.set("machine", Machine::here().to_json());
    std::cout << write_json(json) << "\n";
    return exit_code::done;
  }
  if (!common.quiet)
    std::cout << Machine::here().text() << "\n" << title(settings.what, variants.front(), settings.dry_run);
  std::cout << markdown_table(rows);
  return exit_code::done;
}

int run_operations(const BenchSettings& settings, const RunConfig& config, const CommonOptions& common) {
  if (!settings.grid.empty()) throw UsageError("[bench] --set is for step and attention");
  if (settings.dry_run) throw UsageError("[bench] --dry-run is for step and attention");
  const BenchOptions options = make_options(settings, config.clone(), {});
  check_fits(estimate_operations(options));
  const std::vector<OperationTimes> all = bench_operations(options);
  if (common.json) {
    JsonValue lines = JsonValue::array();
    for (const OperationTimes& one : all) {
      const std::string unit = one.product ? "gflop_per_s" : "gb_per_s";
      JsonValue line = JsonValue::object({{"operation", one.name}, {"shape", one.shape}});
      const auto add = [&](const std::string& direction, const Times& times, double work) {
        if (work == 0) return;
        set_times(line, direction, times);
        line.set(concat(direction, "_", unit), rate(work, times));
      };
      add("forward", one.forward, one.forward_work);
      add("backward", one.backward, one.backward_work);
      lines.push(std::move(line));
    }
    JsonValue json = sizes_json("ops", options);
    json.set("operations", std::move(lines));
    json.set("peak_rss_mib", peak_rss_mib());
    json.set("machine", Machine::here().to_json());
    std::cout << write_json(json) << "\n";
    return exit_code::done;
  }
  if (!common.quiet) std::cout << Machine::here().text() << "\n";
  std::size_t name_width = 0, shape_width = 0;
  for (const OperationTimes& one : all) {
    name_width = std::max(name_width, one.name.size());
    shape_width = std::max(shape_width, one.shape.size());
  }
  for (const OperationTimes& one : all) {
    const char* unit = one.product ? "GFLOP/s" : "GB/s";
    std::printf("%-*s  %-*s  forward %12s %7.1f %-7s", static_cast<int>(name_width), one.name.c_str(),
                static_cast<int>(shape_width), one.shape.c_str(), milliseconds(one.forward.median).c_str(),
                rate(one.forward_work, one.forward), unit);
    if (one.backward_work > 0) {
      std::printf("  backward %12s %7.1f %s", milliseconds(one.backward.median).c_str(),
                  rate(one.backward_work, one.backward), unit);
    }
    std::printf("\n");
  }
  return exit_code::done;
}

}  // namespace

std::function<Result()> declare_bench(CommandLine& line) {
  const auto settings = std::make_shared<BenchSettings>();
  line.add("WHAT", &settings->what,
           "step: a whole training step; attention: a layer's attention alone, forward and backward; ops: single "
           "operations at the model's shapes; size: number of parameters, with nothing run",
           {.required = true});
  const auto add = [&](const char* name, Target target, const char* help, Rules rules = {}) {
    rules.group = "Sizes";
    line.add(name, std::move(target), help, std::move(rules));
  };
  const Rules positive{.least = 1, .most = largest_size};
  add("--pe", &settings->encoding, "position encoding, a sum, or what acts where (as in 'tally train')");
  add("--length", &settings->length, "tokens T in a sequence", positive);
  add("--batch", &settings->batch, "sequences B", positive);
  add("--vocab", &settings->vocabulary, "symbols V", positive);
  add("--steps", &settings->steps, "runs that are measured", positive);
  add("--warmup", &settings->warmup, "runs before those", {.least = 0, .most = largest_size});
  add("--dtype", &settings->dtype, "f32 or f64", {.allowed = {"f32", "f64"}});
  add("--set", &settings->grid,
      "key=value,value: measure with each of these values of length, batch, a model.* or pe.* option; may be given "
      "several times");
  add("--dry-run", &settings->dry_run,
      "run nothing: for step print what size prints, for attention the encoding's parameters and the memory");

  auto config = std::make_shared<RunConfig>(as_usage([&] {
    const std::string encoding = line.look_ahead("--pe");
    return RunConfig::make("flip-flop", encoding.empty() ? settings->encoding : encoding);
  }));
  const auto options = ConfigOptions::declare_for(
      line, *config, [](std::string_view name) { return name.starts_with("pe.") || name.starts_with("model."); });
  return [settings, options, config, &common = line.common] {
    if (std::find(works.begin(), works.end(), settings->what) == works.end()) {
      throw UsageError(concat("[bench] there are step, attention, ops and size, not '", settings->what, "'",
                              did_you_mean(settings->what, works)));
    }
    options->apply(*config);
    if (settings->dry_run && settings->what == "step") settings->what = "size";
    return Result{settings->what == "ops" ? run_operations(*settings, *config, common)
                                          : run_variants(*settings, *config, common)};
  };
}

}  // namespace tally
