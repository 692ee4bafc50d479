// tally bench: how long a whole training step takes, or the single operations of one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "tasks/bench.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/runner/machine.hpp"
#include "tasks/runner/progress.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace {

struct BenchSettings {
  std::string what = "step", encoding = "cope", dtype = "f32";
  BenchOptions options;
};

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", 1e3 * seconds);
  return text;
}

// What both kinds of figures begin with.
JsonValue sizes_json(const BenchSettings& settings) {
  const BenchOptions& o = settings.options;
  return JsonValue::object({{"work", settings.what},
                            {"width", o.model.width},
                            {"heads", o.model.heads},
                            {"length", o.length},
                            {"batch", o.batch},
                            {"vocab", o.vocabulary},
                            {"dtype", settings.dtype},
                            {"steps", o.steps},
                            {"warmup", o.warmup}});
}

int run_step(const BenchSettings& settings, const CommonOptions& common) {
  const BenchOptions& o = settings.options;
  const StepTimes times = bench_step(o);
  const double tokens_per_s = static_cast<double>(o.batch * o.length) / times.step.median;
  if (common.json) {
    JsonValue json = sizes_json(settings);
    json.set("pe", o.encoding.text());
    json.set("layers", o.model.layers);
    json.set("parameters", times.parameters);
    json.set("step_s", times.step.median);
    json.set("min_s", times.step.min);
    json.set("max_s", times.step.max);
    json.set("tokens_per_s", std::llround(tokens_per_s));
    json.set("peak_rss_mib", peak_rss_mib());
    json.set("system_allocations_per_step", times.system_allocations);
    json.set("machine", machine_json());
    std::cout << write_json(json) << "\n";
    return exit_code::done;
  }
  if (!common.quiet) std::cout << machine_text() << "\n";
  std::cout << concat(o.encoding.text(), ", ", o.model.layers, " layers, width ", o.model.width, ", ", o.model.heads,
                      " heads, ", o.batch, " x ", o.length, " tokens, ", with_commas(times.parameters), " parameters, ",
                      settings.dtype, "\nstep ", milliseconds(times.step.median), " (shortest ",
                      milliseconds(times.step.min), ", longest ", milliseconds(times.step.max), ", ", o.steps,
                      " steps), ", with_commas(std::llround(tokens_per_s)), " tokens/s\npeak memory ",
                      with_commas(peak_rss_mib()), " MiB, ", times.system_allocations,
                      " allocations from the system per step\n");
  return exit_code::done;
}

double rate(double work, const Times& times) { return work > 0 && times.median > 0 ? work / times.median / 1e9 : 0; }

int run_operations(const BenchSettings& settings, const CommonOptions& common) {
  const std::vector<OperationTimes> all = bench_operations(settings.options);
  if (common.json) {
    JsonValue lines = JsonValue::array();
    for (const OperationTimes& one : all) {
      const std::string unit = one.product ? "gflop_per_s" : "gb_per_s";
      JsonValue line = JsonValue::object({{"operation", one.name}, {"shape", one.shape}});
      const auto add = [&](const std::string& direction, const Times& times, double work) {
        if (work == 0) return;
        line.set(direction + "_s", times.median);
        line.set(direction + "_min_s", times.min);
        line.set(direction + "_max_s", times.max);
        line.set(direction + "_" + unit, rate(work, times));
      };
      add("forward", one.forward, one.forward_work);
      add("backward", one.backward, one.backward_work);
      lines.push(std::move(line));
    }
    JsonValue json = sizes_json(settings);
    json.set("operations", std::move(lines));
    json.set("peak_rss_mib", peak_rss_mib());
    json.set("machine", machine_json());
    std::cout << write_json(json) << "\n";
    return exit_code::done;
  }
  if (!common.quiet) std::cout << machine_text() << "\n";
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

std::function<int()> declare_bench(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments) {
  auto settings = std::make_shared<BenchSettings>();
  BenchOptions& sizes = settings->options;
  app.add_option("WHAT", settings->what, "step: a whole training step; ops: single operations at the model's shapes")
      ->required()
      ->check(CLI::IsMember({"step", "ops"}));
  app.add_option("--pe", settings->encoding, "position encoding, or a sum")->capture_default_str()->group("Sizes");
  const auto size = [&](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(1, 1 << 24))->capture_default_str()->group("Sizes");
  };
  size("--length", sizes.length, "tokens T in a sequence");
  size("--batch", sizes.batch, "sequences B");
  size("--vocab", sizes.vocabulary, "symbols V");
  size("--steps", sizes.steps, "runs that are measured");
  app.add_option("--warmup", sizes.warmup, "runs before those")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str()
      ->group("Sizes");
  app.add_option("--dtype", settings->dtype, "f32 or f64")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str()
      ->group("Sizes");

  auto config = std::make_shared<RunConfig>(as_usage([&] {
    const std::string encoding = look_ahead(arguments, "--pe");
    return RunConfig::make("flip-flop", encoding.empty() ? settings->encoding : encoding);
  }));
  const auto options = ConfigOptions::declare_for(
      app, *config, [](std::string_view name) { return name.starts_with("pe.") || name.starts_with("model."); });
  return [settings, options, config, &common] {
    options->apply(*config);
    as_usage([&] {
      config->model.validate();
      return 0;
    });
    settings->options.model = config->model;
    settings->options.encoding = config->encoding.clone();
    settings->options.dtype = settings->dtype == "f64" ? DType::f64 : DType::f32;
    return settings->what == "ops" ? run_operations(*settings, common) : run_step(*settings, common);
  };
}

}  // namespace tally
