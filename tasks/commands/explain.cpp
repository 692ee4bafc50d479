// tally explain: summarises the heads of a trained model as means over the sequences of a split.
#include <algorithm>
#include <memory>

#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/commands/parts/sequences.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/inspect/explain.hpp"
#include "tasks/print/printable.hpp"

namespace tally {
namespace {

struct ExplainSettings {
  std::string run, queries = "scored", checkpoint = "newest";
  SequenceChoice sequences;
};

Result run_explain(const ExplainSettings& settings) {
  const TrainedModel trained = load_trained(settings.run, settings.checkpoint);
  const RunConfig& config = trained.folder.config();
  check(config.model.is_transformer(), "explain", "'{}' is an {}, which has no heads", trained.folder.path(),
        config.label());
  const std::string split = settings.sequences.split_of(*trained.task);
  std::int64_t batch = 4;  // reference attention needs the memory
  SequenceChoice sequences = settings.sequences;
  sequences.count_at_most(100, *trained.task);
  const std::vector<Example> examples = sequences.read(*trained.task, [&](std::int64_t count, auto length) {
    batch = std::min(batch, count);
    check_fits(estimate_trace(config, *trained.task, batch, length, false));
  });
  const Explanation told = explain(*trained.model, *trained.task, examples, batch);
  JsonValue json = JsonValue::object({{"run", trained.folder.path()},
                                      {"step", trained.step},
                                      {"split", split},
                                      {"start", settings.sequences.start},
                                      {"sequences", examples.size()},
                                      {"wrong", told.evaluation.wrong},
                                      {"scored", told.evaluation.scored},
                                      {"tables", explanation_json(told)}});
  std::string text = formatted("{}, {}, step {}, {}: {} sequences, wrong {}\n\n{}", printable(trained.folder.path()),
                               config.encoding.text(), trained.step, split, examples.size(),
                               rate_text(told.evaluation.wrong, told.evaluation.scored, "tokens"),
                               explanation_text(told, settings.queries == "all" ? Queries::all : Queries::scored));
  return {.value = std::move(json), .text = std::move(text)};
}

}  // namespace

std::function<Result()> declare_explain(CommandLine& line) {
  const auto settings = std::make_shared<ExplainSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  settings->sequences.count = 0;
  settings->sequences.declare_split(line, "sequences; 100, or all where there are fewer");
  line.add("--queries", &settings->queries, "means over the queries where something is scored, or over all",
           {.allowed = {"scored", "all"}});
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings] { return run_explain(*settings); };
}

}  // namespace tally
