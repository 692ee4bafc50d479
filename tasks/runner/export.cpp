// tally export: the weights of a run alone, with the configuration that they belong to.
#include <memory>

#include "core/io/safetensors.hpp"
#include "core/version.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/output_file.hpp"
#include "tasks/runner/trained_model.hpp"

namespace tally {
namespace {

struct ExportSettings {
  std::string run, out, checkpoint = "newest";
};

Result run_export(const ExportSettings& settings) {
  check_output(settings.out);
  const TrainedModel trained = load_trained(settings.run, settings.checkpoint);
  const RunConfig& config = trained.folder.config();
  const NamedTensors tensors = with_prefix("model.", trained.model->parameters());
  Metadata metadata{{"format", "tally weights"},
                    {"config", write_json(config.to_json())},
                    {"step", std::to_string(trained.step)},
                    {"version", std::string(version)}};
  add_checksums(metadata, tensors);
  write_safetensors(settings.out, tensors, metadata);
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"step", trained.step},
                                      {"tensors", tensors.size()},
                                      {"parameters", trained.model->parameter_count()}}),
          .notice = true};
}

}  // namespace

std::function<Result()> declare_export(CommandLine& line) {
  const auto settings = std::make_shared<ExportSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  line.add("--out", &settings->out, "safetensors file to write", {.required = true});
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings] { return run_export(*settings); };
}

}  // namespace tally
