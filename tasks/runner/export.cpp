// tally export: the weights of a run alone, with the configuration that they belong to.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "core/io/safetensors.hpp"
#include "core/version.hpp"
#include "tasks/printable.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/output_file.hpp"
#include "tasks/runner/trained_model.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace {

struct ExportSettings {
  std::string run, out, checkpoint = "newest";
};

int run_export(const ExportSettings& settings, const CommonOptions& common) {
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
  if (common.json) {
    std::cout << write_json(JsonValue::object({{"out", settings.out},
                                               {"step", trained.step},
                                               {"tensors", tensors.size()},
                                               {"parameters", trained.model->parameter_count()}}))
              << "\n";
  } else if (!common.quiet) {
    std::cout << concat(printable(settings.out), ": ", tensors.size(), " tensors, ",
                        with_commas(trained.model->parameter_count()), " parameters of step ", trained.step, "\n");
  }
  return exit_code::done;
}

}  // namespace

std::function<int()> declare_export(CLI::App& app, CommonOptions& common, const std::vector<std::string>&) {
  auto settings = std::make_shared<ExportSettings>();
  app.add_option("RUN", settings->run, "folder of the run")->required();
  app.add_option("--out", settings->out, "safetensors file to write")->required()->group("What");
  app.add_option("--checkpoint", settings->checkpoint, checkpoint_help)->capture_default_str()->group("What");
  return [settings, &common] { return run_export(*settings, common); };
}

}  // namespace tally
