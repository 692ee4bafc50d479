#include "tasks/commands/parts/bench_work.hpp"

#include <cstdio>
#include <map>

#include "tasks/command_line/command.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"

namespace tally {

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

ModelSetting model_of(const BenchOptions& o) {
  return {o.config.model, o.config.encoding, o.vocabulary, o.max_length, o.config.dtype()};
}

std::string form_of(const std::string& what, const BenchOptions& o) {
  return attention_form(model_of(o), what == "attention" ? 1 : o.config.model.layers);
}

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

namespace {

Column count_of(std::string title, const std::string& name, const char* unit = "") {
  return {std::move(title), [=](const JsonValue& json) { return with_commas(json.integer(name)) + unit; }};
}
Column bytes_of(std::string title, const std::string& name) {
  return {std::move(title), [=](const JsonValue& json) { return bytes_text(json.real(name)); }};
}
// "1.234 ms (1.200-1.300)".
Column times_of(std::string title, const std::string& median, const std::string& least, const std::string& most) {
  return {std::move(title), [=](const JsonValue& json) {
            const auto ms = [&](const std::string& name) { return fixed(1e3 * json.real(name), 3); };
            return formatted("{} ms ({}-{})", ms(median), ms(least), ms(most));
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
const Column tensor_peak = count_of("tensors", "tensor_peak_mib", " MiB");
const Column process = count_of("process", "peak_rss_mib", " MiB");

// The figures of one work, after its sizes.
Figures with_sizes(const std::string& what, const BenchOptions& o, const JsonValue& measured) {
  JsonValue json = sizes_json(what, o);
  for (const JsonMember& member : measured.members()) json.set(member.name, member.value);
  return {json};
}

// Throws Error if the memory cannot be counted, or an encoding does not accept the sequences.
MemoryEstimate checked(const BenchOptions& o, MemoryEstimate memory) {
  check(!memory.more, "memory", "this needs more than {}", bytes_text(memory.total()));
  check_length(model_of(o), o.length);
  return memory;
}

MemoryEstimate estimate_step(const BenchOptions& o) {
  return estimate_step(model_of(o), o.config, o.length, o.warmup + o.steps);
}

}  // namespace

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

Figures plan_step(const BenchOptions& o) {
  const MemoryEstimate memory = as_usage([&] { return checked(o, estimate_step(o)); });
  const double parameters = static_cast<double>(memory.parameter_count);
  return with_sizes("step", o,
                    JsonValue::object({{"vocab", o.vocabulary},
                                       {"layers", o.config.model.layers},
                                       {"parameters", memory.parameter_count},
                                       {"encoding_parameters", memory.encoding_parameter_count},
                                       {"parameter_bytes", parameters * static_cast<double>(size_of(o.config.dtype()))},
                                       {"memory_bytes", memory.total()}}));
}

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

const std::vector<Work>& works() {
  static const std::vector<Work> all{
      {"step",
       "the training step of 'tally train'",
       {times_of("step", "step_s", "min_s", "max_s"),
        count_of("tokens/s", "tokens_per_s"),
        tensor_peak,
        process,
        {"of gemm's rate", [](const JsonValue& json) { return percent_text(json.real("share_of_gemm")); }}},
       [](const BenchOptions& o) { return with_sizes("step", o, bench_step(o)); },
       estimate_step},
      {"attention",
       "a layer's attention alone, forward and backward",
       {times_of("forward"), rate_of("forward"), times_of("backward"), rate_of("backward"), times_of("both"),
        tensor_peak, process},
       [](const BenchOptions& o) { return with_sizes("attention", o, bench_attention(o)); },
       estimate_attention}};
  return all;
}

Work planned(const Work& work) {
  if (work.name == "attention") {
    return {work.name,
            work.help,
            {count_of("parameters of the encoding", "encoding_parameters"), bytes_of("memory", "memory_bytes")},
            plan_attention,
            nullptr};
  }
  return {work.name,
          work.help,
          {count_of("parameters", "parameters"), count_of("of the encoding", "encoding_parameters"),
           bytes_of("parameters in memory", "parameter_bytes"), bytes_of("memory of a step", "memory_bytes")},
          plan_step,
          nullptr};
}

}  // namespace tally
