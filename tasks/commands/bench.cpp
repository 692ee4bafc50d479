// tally bench: measures the time of a training step or of one attention layer; with --dry-run, counts parameters and
// memory. tests/bench/README.md explains the figures.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>

#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/command_line/progress.hpp"
#include "tasks/commands/parts/bench_work.hpp"
#include "tasks/print/table.hpp"
#include "tasks/runs/machine.hpp"

namespace tally {
namespace {

struct BenchSettings {
  std::string what, task = "flip-flop", preset = "paper", encoding = "cope";
  std::vector<std::string> grid;  // "pe.cope.p-max=16,64"
  std::int64_t vocabulary = 0, steps = 5, warmup = 2;
  std::int64_t rounds = 0;  // for several encodings in turns; 0: the default
  bool dry_run = false;
};
constexpr std::int64_t usual_rounds = 3;

// A measured or planned variant: an encoding with one combination of --set.
struct Variant {
  BenchOptions options;
  Settings combination;
};

Work find_work(const BenchSettings& settings) {
  std::vector<std::string> names;
  for (const Work& work : works()) {
    names.push_back(work.name);
    if (work.name != settings.what) continue;
    return settings.dry_run ? planned(work) : work;
  }
  throw UsageError(
      formatted("[bench] there are step and attention, not '{}'{}", settings.what, did_you_mean(settings.what, names)));
}

// The options of one combination of --set.
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

// Whether resetting a task option to its default changes the sequences: their lengths, symbols or number.
bool changes_sizes(const RunConfig::Field& field, const BenchOptions& with, bool reads_symbols) {
  RunConfig given = with.config.clone();
  given.run.batch = std::numeric_limits<std::int32_t>::max();  // limited by the number of sequences
  try {
    RunConfig usual = given.clone();
    usual.set(field.name, to_text(field.option.value));
    const BenchOptions here(std::move(given)), there(std::move(usual));
    return here.length != there.length || here.max_length != there.max_length ||
           here.config.run.batch != there.config.run.batch || (reads_symbols && here.vocabulary != there.vocabulary);
  } catch (const Error&) {
    return true;  // the default contradicts other options
  }
}

// Whether resetting an option to its default changes the plan.
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

// Whether an option of a configuration has no effect on the timing of that work, or on its plan if it is only planned.
// A step depends on all options.
bool is_idle(const std::string& what, bool planned, const RunConfig::Field& field, const BenchOptions& with,
             bool own_symbols) {
  const std::string& name = field.name;
  const auto one_of = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::count(names, name) > 0;
  };
  const bool attention = what == "attention";
  if (!attention && !planned) return false;
  if (name.starts_with("task.")) return !changes_sizes(field, with, !attention && !own_symbols);
  if (name.starts_with("optimiser.")) return attention || !one_of({"optimiser.name", "optimiser.momentum"});
  if (one_of({"seed", "data-seed"})) return true;
  if (planned && one_of({"model.init", "model.norm-eps", "model.dropout"})) return true;
  // In the attention work, only the projections of the encoding have biases.
  const bool of_encoding = (planned && name.starts_with("pe.")) || (attention && name == "model.bias");
  if (of_encoding) return !changes_plan(field, with, attention ? plan_attention : plan_step);
  if (!attention) return false;
  if (name == "model.layers") return with.config.encoding.least_layers() == 1;
  return one_of({"model.hidden", "model.norm", "model.norm-eps", "model.norm-place", "model.residual",
                 "model.activation", "model.tied", "model.final-norm", "model.qk-norm"});
}

// `given`: on the command line and by --set. An option that repeats the value of the configuration passes.
void refuse_idle(const BenchSettings& settings, bool planned, const RunConfig& usual, const Settings& given,
                 const BenchOptions& with) {
  const std::string what = formatted("{}{}", settings.what, planned ? " --dry-run" : "");
  const auto refuse = [&](std::string_view name, std::string_view wants) {
    throw UsageError(formatted("[bench] --{} has no effect on {}; it is for {}", name, what, wants));
  };
  if (planned && settings.steps != BenchSettings().steps) refuse("steps", "what is timed");
  if (planned && settings.warmup != BenchSettings().warmup) refuse("warmup", "what is timed");
  for (const RunConfig::Field& field : usual.fields()) {
    for (const auto& [name, value] : given) {
      if ((name != field.name && name != field.alias) || value == to_text(field.option.value)) continue;
      if (is_idle(settings.what, planned, field, with, settings.vocabulary > 0)) refuse(field.name, "step");
    }
  }
}

// With several encodings, each line names its own.
std::string title(const Work& work, const std::vector<Variant>& variants, bool in_turns, std::int64_t rounds) {
  const BenchOptions& o = variants.front().options;
  const ModelOptions& m = o.config.model;
  const std::string model =
      formatted("{}{}: {}width {}, {} heads, ", work.name, in_turns ? "" : " with " + o.config.encoding.text(),
                work.name == "attention" ? "" : formatted("{} layers, ", m.layers), m.width, m.heads);
  const bool planned = work.estimate == nullptr;
  return formatted("{}{}{} x {} tokens, {}{}{}{}\n\n", model, planned ? formatted("{} symbols, ", o.vocabulary) : "",
                   o.config.run.batch, o.length, o.config.dtype(),
                   in_turns ? "" : ", attention " + form_of(work.name, o),
                   planned ? "" : formatted("; medians of {} runs (shortest to longest)", o.steps),
                   in_turns && !planned ? formatted(", of the middle one of {} rounds in turns", rounds) : "");
}

void set_peak(JsonValue& line) {
  if (line.contains("tensor_peak_mib")) line.set("peak_rss_mib", peak_rss_mib());
}

// Measures the variants one after the other.
Figures measure(const Work& work, const std::vector<Variant>& variants) {
  Figures figures;
  for (const Variant& variant : variants) {
    for (JsonValue& line : work.measure(variant.options)) {
      set_peak(line);
      for (const auto& [name, value] : variant.combination) line.set(name, value);
      figures.push_back(std::move(line));
    }
  }
  return figures;
}

double seconds_of(const JsonValue& line) { return line.real(line.contains("step_s") ? "step_s" : "both_s"); }

// One line per encoding: its figures in the median round, and the median of its ratios to the first encoding. Each
// ratio is taken within a round, because other load on the machine affects neighbouring measurements alike.
Figures measure_in_turns(const Work& work, const std::vector<Variant>& variants, std::int64_t rounds) {
  std::vector<Figures> all(variants.size());
  std::vector<std::vector<double>> ratios(variants.size());
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t n = 0; n < variants.size(); ++n) {
      JsonValue line = work.measure(variants[n].options).front();
      set_peak(line);
      all[n].push_back(std::move(line));
      ratios[n].push_back(seconds_of(all[n].back()) / seconds_of(all[0].back()));
    }
  }
  const auto middle = [](auto& values, auto key) {
    std::ranges::sort(values, {}, key);
    return values[values.size() / 2];
  };
  Figures figures;
  for (std::size_t n = 0; n < variants.size(); ++n) {
    figures.push_back(middle(all[n], seconds_of));
    figures.back().set("ratio", middle(ratios[n], std::identity()));
  }
  return figures;
}

// Made before the first measurement, so that a wrong value is reported as wrong usage.
std::vector<Variant> variants_of(const BenchSettings& settings, const Work& work,
                                 const std::vector<std::string>& encodings, const std::vector<Settings>& combinations,
                                 const ConfigOptions& options) {
  std::vector<Variant> variants;
  for (const std::string& encoding : encodings) {
    const RunConfig usual = as_usage([&] { return RunConfig::make(settings.task, encoding, settings.preset); });
    for (const Settings& combination : combinations) {
      RunConfig config = usual.clone();
      options.apply(config);
      variants.push_back({make_options(settings, std::move(config), combination), combination});
      const BenchOptions& one = variants.back().options;
      if (settings.what == "attention" && !one.config.model.is_transformer()) {
        throw UsageError(
            formatted("[bench] attention is for transformers: a model of kind {} has none", one.config.model.kind));
      }
      if (work.estimate != nullptr) {
        check_fits(as_usage([&] {
          MemoryEstimate estimate = work.estimate(one);
          check_length(model_of(one), one.length);
          return estimate;
        }));
      }
      Settings given = options.given();
      given.insert(given.end(), combination.begin(), combination.end());
      refuse_idle(settings, work.estimate == nullptr, usual, given, one);
    }
  }
  return variants;
}

void refuse_unusable(const BenchSettings& settings, const Work& work, bool in_turns) {
  if (settings.vocabulary > 0 && !(settings.what == "step" && settings.dry_run)) {
    throw UsageError("[bench] --vocab has no effect here; it is for step --dry-run");
  }
  if (in_turns && !settings.grid.empty()) {
    throw UsageError("[bench] --set is for one encoding: several are measured with the same options, in turns");
  }
  if (settings.rounds > 0 && (!in_turns || work.estimate == nullptr)) {
    throw UsageError("[bench] --rounds has no effect here; it is for several encodings whose times are measured");
  }
}

// Prints a line for every combination of --set or every encoding, or one JSON object.
Result run_bench(const BenchSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  const Work work = find_work(settings);
  const std::vector<std::string> encodings = split_encodings(settings.encoding);
  const bool in_turns = encodings.size() > 1, timed_in_turns = in_turns && work.estimate != nullptr;
  refuse_unusable(settings, work, in_turns);
  const std::vector<GridDimension> grid = parse_grid(settings.grid);
  const std::int64_t rounds = settings.rounds > 0 ? settings.rounds : usual_rounds;
  const std::vector<Variant> variants = variants_of(settings, work, encodings, combinations(grid), options);

  Figures figures = timed_in_turns ? measure_in_turns(work, variants, rounds) : measure(work, variants);
  if (work.name == "step" && !settings.dry_run) add_shares(figures);

  std::vector<Column> columns;
  const auto of_member = [](const std::string& name) {
    return [=](const JsonValue& line) { return line.string(name); };
  };
  if (in_turns) columns.push_back({"encoding", of_member("pe")});
  for (const GridDimension& dimension : grid) columns.push_back({dimension.key, of_member(dimension.key)});
  columns.insert(columns.end(), work.columns.begin(), work.columns.end());
  if (timed_in_turns) {
    columns.push_back({formatted("of {}'s time", variants.front().options.config.encoding.text()),
                       [](const JsonValue& line) { return fixed(line.real("ratio"), 2); }});
  }
  if (in_turns) columns.push_back({"attention", of_member("attention")});
  TableRows rows(1);
  for (const Column& column : columns) rows[0].push_back(column.title);
  for (const JsonValue& line : figures) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const Column& column : columns) row.push_back(column.cell(line));
  }
  std::string text =
      common.quiet ? "" : formatted("{}\n{}", Machine::here().text(), title(work, variants, in_turns, rounds));
  text += markdown_table(rows);
  JsonValue json = JsonValue::object({{"work", work.name}});
  if (timed_in_turns) json.set("rounds", rounds);
  if (!in_turns && grid.empty()) {
    json = figures.front();
  } else {
    json.set(in_turns ? "encodings" : "variants", JsonValue(std::move(figures)));
  }
  json.set("machine", Machine::here().to_json());
  return {.value = std::move(json), .text = std::move(text)};
}

// Whether an option is declared. All options with a prefix are, and the options of a run itself if a step depends on
// them.
bool is_wanted(std::string_view name) {
  return name.find('.') != std::string_view::npos || name == "batch" || name == "seed" || name == "data-seed" ||
         name == "dtype";
}

}  // namespace

std::function<Result()> declare_bench(CommandLine& line) {
  const auto settings = std::make_shared<BenchSettings>();
  std::string help;
  for (const Work& work : works()) help += formatted("{}{}: {}", help.empty() ? "" : "; ", work.name, work.help);
  line.add("WHAT", &settings->what, help, {.required = true});
  line.add("--task", &settings->task, "whose batches a step trains on");
  line.add("--preset", &settings->preset, "the task's settings");
  line.add(
      "--pe", &settings->encoding,
      "position encoding, a sum, or what acts where (as in 'tally train'); or several with commas between them (as "
      "in 'tally sweep'), whose steps or attention are measured in turns beside those of the first");
  line.add("--vocab", &settings->vocabulary, "symbols of step --dry-run; 0: the task's", {.least = 0, .most = 1 << 24});
  line.add("--steps", &settings->steps, "runs that are measured", {.least = 1, .most = 1 << 24});
  line.add("--warmup", &settings->warmup, "runs before those", {.least = 0, .most = 1 << 24});
  line.add("--rounds", &settings->rounds, formatted("of several encodings in turns; 0: {}", usual_rounds),
           {.least = 0, .most = 1 << 24});
  line.add("--set", &settings->grid,
           "key=value,value: measure with each of these values of an option; may be given several times");
  line.add("--dry-run", &settings->dry_run,
           "run nothing: print parameters and memory, for attention those of the encoding and of the layer");
  const RunConfig config = as_usage([&] {
    const auto given = [&](const char* name, const std::string& usual) {
      const std::string value = line.look_ahead(name);
      return value.empty() ? usual : value;
    };
    return RunConfig::make(given("--task", settings->task), sum_of(split_encodings(given("--pe", settings->encoding))),
                           given("--preset", settings->preset));
  });
  const auto options = ConfigOptions::declare_for(line, config, is_wanted);
  return [settings, options, &common = line.common] { return run_bench(*settings, *options, common); };
}

}  // namespace tally
