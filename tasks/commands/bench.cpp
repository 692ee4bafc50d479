// tally bench: times of a training step and of one layer's attention, or their parameters and memory with --dry-run.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"
#include "tasks/runs/machine.hpp"

namespace tally {
namespace {

struct BenchSettings {
  std::string what, task = "flip-flop", preset = "paper", encoding = "cope";
  std::vector<std::string> grid;  // "pe.cope.p-max=16,64"
  std::int64_t vocabulary = 0, steps = 5, warmup = 2;
  std::int64_t rounds = 0;  // 0: one, or three of several variants
  bool dry_run = false;

  bool of_attention() const { return what == "attention"; }
};

// A measured or planned variant: an encoding with one combination of --set.
struct Variant {
  BenchOptions options;
  Settings combination;
};

using Figures = std::vector<JsonValue>;

// Whether an option changes the measurement, and so is declared. Attention is one layer without its projections.
bool is_wanted(bool of_attention, std::string_view name) {
  const auto any_of = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::count(names, name) > 0;
  };
  if (name.starts_with("task.") || name.starts_with("pe.") || any_of({"batch", "dtype"})) return true;
  if (!of_attention) return name.find('.') != std::string_view::npos || any_of({"seed", "data-seed", "train"});
  return any_of({"model.layers", "model.width", "model.heads", "model.kv-heads", "model.head-width", "model.attention",
                 "model.dropout", "model.bias", "model.init"});
}

std::string form_of(const BenchSettings& settings, const BenchOptions& o) {
  return attention_form(o.model(), settings.of_attention() ? 1 : o.config.model.layers);
}

MemoryEstimate estimate_of(const BenchSettings& settings, const BenchOptions& o) {
  if (settings.of_attention()) return estimate_attention(o);
  return estimate_step(o.model(), o.config, o.length, o.warmup + o.steps);
}

// The parameters and the memory of the work. Nothing runs.
JsonValue plan(const BenchSettings& settings, const BenchOptions& o) {
  const MemoryEstimate memory = estimate_of(settings, o);
  check(!memory.more, "memory", "this needs more than {}", bytes_text(memory.total()));
  if (settings.of_attention()) {
    std::int64_t parameters = 0;
    for (const auto& [name, shape] : parameter_shapes(o.model())) {
      if (name.starts_with("position.") || name.starts_with("blocks.0.position.")) parameters += shape.numel();
    }
    return JsonValue::object({{"encoding_parameters", parameters}, {"memory_bytes", memory.total()}});
  }
  const double parameters = static_cast<double>(memory.parameter_count);
  return JsonValue::object({{"vocab", o.vocabulary},
                            {"layers", o.config.model.layers},
                            {"parameters", memory.parameter_count},
                            {"encoding_parameters", memory.encoding_parameter_count},
                            {"parameter_bytes", parameters * static_cast<double>(size_of(o.config.dtype()))},
                            {"memory_bytes", memory.total()}});
}

// The figures of a variant after its sizes.
JsonValue figures_of(const BenchSettings& settings, const Variant& variant) {
  const BenchOptions& o = variant.options;
  JsonValue json = JsonValue::object({{"work", settings.what},
                                      {"pe", o.config.encoding.text()},
                                      {"width", o.config.model.width},
                                      {"heads", o.config.model.heads},
                                      {"attention", form_of(settings, o)},
                                      {"length", o.length},
                                      {"batch", o.config.run.batch},
                                      {"dtype", to_text(o.config.dtype())},
                                      {"steps", o.steps},
                                      {"warmup", o.warmup}});
  const JsonValue found = settings.dry_run          ? as_usage([&] { return plan(settings, o); })
                          : settings.of_attention() ? bench_attention(o)
                                                    : bench_step(o);
  for (const JsonMember& member : found.members()) json.set(member.name, member.value);
  if (!settings.dry_run) json.set("peak_rss_mib", peak_rss_mib());
  for (const auto& [name, value] : variant.combination) json.set(name, value);
  return json;
}

double seconds_of(const JsonValue& line) { return line.real(line.contains("step_s") ? "step_s" : "both_s"); }

// One line for each variant: its figures in the median round, and the median of its ratios to the first variant. Each
// ratio is taken within a round, because other load on the machine affects neighbouring measurements alike.
Figures measure(const BenchSettings& settings, const std::vector<Variant>& variants, std::int64_t rounds) {
  std::vector<Figures> all(variants.size());
  std::vector<std::vector<double>> ratios(variants.size());
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t n = 0; n < variants.size(); ++n) {
      all[n].push_back(figures_of(settings, variants[n]));
      if (!settings.dry_run) ratios[n].push_back(seconds_of(all[n].back()) / seconds_of(all[0].back()));
    }
  }
  const auto middle = [](auto& values, auto key) {
    std::ranges::sort(values, {}, key);
    return values[values.size() / 2];
  };
  Figures figures;
  for (std::size_t n = 0; n < variants.size(); ++n) {
    figures.push_back(settings.dry_run ? all[n].front() : middle(all[n], seconds_of));
    if (!settings.dry_run && variants.size() > 1) figures.back().set("ratio", middle(ratios[n], std::identity()));
  }
  return figures;
}

// Adds the speed of steps relative to a matmul. This comes last, because the matrices would count in the process's peak
// memory.
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

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Made before the first measurement, so that a wrong value is reported as wrong usage.
std::vector<Variant> variants_of(const BenchSettings& settings, const ConfigOptions& options) {
  std::vector<Variant> variants;
  for (const std::string& encoding : split_encodings(settings.encoding)) {
    for (const Settings& combination : combinations(parse_grid(settings.grid))) {
      variants.push_back(as_usage([&] {
        RunConfig config = RunConfig::make(settings.task, encoding, settings.preset);
        options.apply(config);
        for (const auto& [name, value] : combination) {
          config.set(name, value);
          for (const RunConfig::Field& field : config.fields()) {
            const bool named = name == field.name || name == field.alias;
            check(!named || is_wanted(settings.of_attention(), field.name), "bench", "{} has no effect on {}",
                  field.name, settings.what);
          }
        }
        config.validate();
        config.refuse_idle();
        check(config.model.is_transformer() || !settings.of_attention(), "bench",
              "attention is for transformers: a model of kind {} has none", config.model.kind);
        BenchOptions one(std::move(config));
        if (settings.vocabulary > 0) one.vocabulary = settings.vocabulary;
        one.steps = settings.steps;
        one.warmup = settings.warmup;
        check_length(one.model(), one.length);
        if (!settings.dry_run) check_fits(estimate_of(settings, one));
        return Variant{std::move(one), combination};
      }));
    }
  }
  return variants;
}

ResultTable table_of(const BenchSettings& settings, const std::vector<Variant>& variants, const Figures& figures) {
  ResultTable table;
  const auto add = [&](const std::string& title, const auto& cell) {
    table.columns.push_back({title});
    table.rows.resize(figures.size());
    for (std::size_t n = 0; n < figures.size(); ++n) table.rows[n].push_back(cell(figures[n]));
  };
  const auto add_text = [&](const std::string& name, const std::string& title) {
    add(title, [&](const JsonValue& line) { return line.string(name); });
  };
  const auto add_count = [&](const std::string& name, const std::string& title, const char* unit = "") {
    add(title, [&](const JsonValue& line) { return with_commas(line.integer(name)) + unit; });
  };
  const auto add_bytes = [&](const std::string& name, const std::string& title) {
    add(title, [&](const JsonValue& line) { return bytes_text(line.real(name)); });
  };
  // "1.234 ms (1.200-1.300)".
  const auto add_times = [&](const std::string& title, const std::string& median, const std::string& prefix) {
    add(title, [&](const JsonValue& line) {
      const auto ms = [&](const std::string& name) { return fixed(1e3 * line.real(name), 3); };
      return formatted("{} ms ({}-{})", ms(median), ms(prefix + "min_s"), ms(prefix + "max_s"));
    });
  };
  const bool several = split_encodings(settings.encoding).size() > 1;
  if (several) add_text("pe", "encoding");
  for (const auto& setting : variants.front().combination) add_text(setting.first, setting.first);
  if (settings.dry_run) {
    if (!settings.of_attention()) add_count("parameters", "parameters");
    add_count("encoding_parameters", "parameters of the encoding");
    if (!settings.of_attention()) add_bytes("parameter_bytes", "parameters in memory");
    add_bytes("memory_bytes", settings.of_attention() ? "memory" : "memory of a step");
  } else if (settings.of_attention()) {
    for (const std::string direction : {"forward", "backward", "both"}) {
      add_times(direction, direction + "_s", direction + "_");
      add("rate", [&](const JsonValue& line) { return fixed(line.real(direction + "_gflop_per_s"), 1) + " GFLOP/s"; });
    }
  } else {
    add_times("step", "step_s", "");
    add_count("tokens_per_s", "tokens/s");
    add("of gemm's rate", [](const JsonValue& line) { return percent_text(line.real("share_of_gemm")); });
  }
  if (!settings.dry_run) {
    add_count("tensor_peak_mib", "tensors", " MiB");
    add_count("peak_rss_mib", "process", " MiB");
    if (variants.size() > 1) {
      add("of the first's time", [](const JsonValue& line) { return fixed(line.real("ratio"), 2); });
    }
  }
  add_text("attention", "attention");
  return table;
}

// Prints a line for every encoding and combination of --set, or one JSON object.
Result run_bench(const BenchSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  const std::vector<Variant> variants = variants_of(settings, options);
  const std::int64_t rounds = settings.rounds > 0 ? settings.rounds : variants.size() == 1 || settings.dry_run ? 1 : 3;
  Figures figures = measure(settings, variants, rounds);
  if (!settings.of_attention() && !settings.dry_run) add_shares(figures);

  const BenchOptions& o = variants.front().options;
  const ModelOptions& model = o.config.model;
  const std::string title =
      formatted("{}\n{} of {}: {}width {}, {} heads, {} x {} tokens, {} symbols, {}{}\n\n", Machine::here().text(),
                settings.what, settings.encoding, settings.of_attention() ? "" : formatted("{} layers, ", model.layers),
                model.width, model.heads, o.config.run.batch, o.length, o.vocabulary, o.config.dtype(),
                settings.dry_run ? ""
                                 : formatted("; medians of {} runs (shortest to longest){}", o.steps,
                                             rounds > 1 ? formatted(" in the middle one of {} rounds", rounds) : ""));
  Result result{.text = (common.quiet ? "" : title) + table_of(settings, variants, figures).text()};
  if (variants.size() == 1) {
    result.value = figures.front();
  } else {
    result.value = JsonValue::object({{"work", settings.what}, {"rounds", rounds}});
    result.value.set("variants", JsonValue(std::move(figures)));
  }
  result.value.set("machine", Machine::here().to_json());
  return result;
}

}  // namespace

std::function<Result()> declare_bench(CommandLine& line) {
  const auto settings = std::make_shared<BenchSettings>();
  line.add("WHAT", &settings->what,
           "step: the training step of 'tally train'; attention: a layer's attention alone, forward and backward",
           {.allowed = {"step", "attention"}, .required = true});
  line.add("--task", &settings->task, "task that provides the batches");
  line.add("--preset", &settings->preset, "the task's settings");
  line.add("--pe", &settings->encoding,
           "position encoding, a combination, or one by layer and head (as in 'tally train'); or several with commas "
           "between them (as in 'tally sweep')");
  line.add("--set", &settings->grid,
           "key=value,value: measure with each of these values of an option; may be given several times");
  line.add("--steps", &settings->steps, "measured runs", {.least = 1, .most = 1 << 24});
  line.add("--warmup", &settings->warmup, "unmeasured runs before them", {.least = 0, .most = 1 << 24});
  line.add("--rounds", &settings->rounds, "rounds in which several encodings or values are measured in turn; 0: 3",
           {.least = 0, .most = 1 << 24});
  line.add("--dry-run", &settings->dry_run,
           "only print parameters and memory; for attention, those of the encoding and the layer",
           {.excludes = {"--steps", "--warmup", "--rounds"}});
  const bool of_attention = std::ranges::count(line.words(), "attention") > 0;
  if (!of_attention) {
    line.add("--vocab", &settings->vocabulary, "vocabulary of the model; 0: the task's",
             {.least = 0, .most = 1 << 24, .needs = {"--dry-run"}});
  }
  const RunConfig config = as_usage([&] {
    const auto given = [&](const char* name, const std::string& usual) {
      const std::string value = line.look_ahead(name);
      return value.empty() ? usual : value;
    };
    return RunConfig::make(given("--task", settings->task), sum_of(split_encodings(given("--pe", settings->encoding))),
                           given("--preset", settings->preset));
  });
  const auto options = ConfigOptions::declare_for(
      line, config, [of_attention](std::string_view name) { return is_wanted(of_attention, name); });
  return [settings, options, &common = line.common] { return run_bench(*settings, *options, common); };
}

}  // namespace tally
