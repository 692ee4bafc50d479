// tally inspect: shows the attention and gates of runs in one HTML page.
#include <algorithm>
#include <limits>
#include <memory>
#include <set>

#include "core/io/atomic_file.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/commands/parts/other_task.hpp"
#include "tasks/commands/parts/sequences.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/inspect/inspect.hpp"
#include "tasks/print/page.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/text/prepare/token_file.hpp"

namespace tally {
namespace {

// A page of a few megabytes opens quickly in any browser.
constexpr std::int64_t comfortable_bytes = 4'500'000;

struct InspectSettings {
  std::vector<std::string> runs;
  std::string out, text, checkpoint = "newest", data, token_type, mark;
  std::int64_t length = 0, at = 0;
  SequenceChoice sequences;
};

// The task that provides the sequences, if it is not the run's own: another text, another window length or another
// first token. Throws UsageError if the task does not support this.
std::unique_ptr<Task> other_task(const InspectSettings& settings, const TrainedModel& trained) {
  const RunConfig& config = trained.folder.config();
  std::vector<ChangedOption> changes;
  if (!settings.data.empty()) changes = other_text(config, settings.data, "--data");
  if (!settings.token_type.empty()) changes.push_back({"token-type", settings.token_type, "--token-type"});
  if (settings.length > 0) changes.push_back({"length", to_text(settings.length), "--length"});
  if (settings.at > 0) changes.push_back({"after", to_text(settings.at), "--at"});
  if (changes.empty()) return nullptr;
  if (settings.at > 0 && settings.sequences.split == trained.task->splits().front().name) {
    throw UsageError("[inspect] the training split is read in random order: --at means nothing there");
  }
  return make_other_task(config, *trained.task, changes);
}

// The marks to show. Only texts have lines.
std::vector<Mark> marks_of(const InspectSettings& settings, const TaskEntry& task) {
  if (!settings.mark.empty()) return {{settings.mark, settings.mark}};
  return task.reads_files ? text_marks() : std::vector<Mark>{};
}

// The sequences with their names.
std::vector<std::pair<std::string, Example>> read_sequences(const InspectSettings& settings, const Task& task,
                                                            const auto& check_length_fits) {
  std::vector<std::pair<std::string, Example>> named;
  if (!settings.text.empty()) {
    std::vector<std::int32_t> tokens = as_usage([&] { return task.encode(settings.text); });
    if (tokens.size() < 2) throw UsageError("[inspect] the text must have at least two symbols");
    check_length_fits(1, static_cast<std::int64_t>(tokens.size()));
    Example example = next_token_example(std::move(tokens));
    // A loss needs at least one counted token, although the text has no known targets.
    std::fill(example.loss_mask.begin(), example.loss_mask.end() - 1, std::uint8_t{1});
    named.emplace_back("text", std::move(example));
    return named;
  }
  SequenceChoice choice = settings.sequences;
  const std::string split = choice.split_of(task);
  choice.count_at_most(4, task);  // by default the number that fits on the page
  std::int64_t number = choice.start;
  for (Example& example : choice.read(task, check_length_fits)) {
    std::string name = formatted("{} {}", split.empty() ? "sequence" : split, number++);
    if (settings.at > 0) name += formatted(", from token {}", settings.at);
    named.emplace_back(std::move(name), std::move(example));
  }
  return named;
}

Result run_inspect(const InspectSettings& settings, const CommonOptions& common) {
  known_ending(settings.out, {".html", ".htm"});
  check_output(settings.out);
  std::vector<TrainedModel> trained;
  for (const std::string& run : settings.runs) {
    trained.push_back(load_trained(run, settings.checkpoint, {}, settings.data));
  }
  const std::unique_ptr<Task> other = other_task(settings, trained.front());
  const Task& task = other != nullptr ? *other : *trained.front().task;
  std::vector<InspectedRun> runs;
  for (const TrainedModel& one : trained) {
    check(one.folder.config().model.is_transformer(), "inspect", "'{}' is an {}, which has no attention to look at",
          one.folder.path(), one.folder.config().label());
    check(one.task->vocabulary() == task.vocabulary(), "inspect",
          "'{}' has another vocabulary than '{}': no sequence can be shown to both", one.folder.path(),
          trained.front().folder.path());
    runs.push_back({one.folder.path(), one.folder.config(), *one.model, one.step});
  }
  const auto sequences = read_sequences(settings, task, [&](std::int64_t, std::int64_t length) {
    for (const InspectedRun& run : runs) {
      check_length({run.config.model, run.config.encoding, static_cast<std::int64_t>(task.vocabulary().size()),
                    trained.front().task->max_length(), run.config.dtype()},
                   length);
      check_fits(estimate_trace(run.config, task, 1, length, false));
    }
  });
  std::vector<std::int32_t> tokens;
  for (const auto& [name, example] : sequences) {
    tokens.insert(tokens.end(), example.tokens.begin(), example.tokens.end());
  }
  Inspection inspection(task, runs, tokens, marks_of(settings, *trained.front().folder.config().task));
  std::int64_t count = 0;
  for (const auto& [name, example] : sequences) {
    const bool asked = settings.sequences.count > 0 || !settings.sequences.tokens.empty();
    if (count > 0 && !asked && inspection.packed_bytes() * (count + 1) / count > comfortable_bytes) break;
    inspection.add(example, name);
    ++count;
  }
  std::string title = "tally inspect:";
  for (const InspectedRun& run : runs) title += formatted(" {}", run.config.encoding.text());
  const std::string page = make_page(
      "inspect.html", formatted("{}, {}", title, trained.front().folder.config().task->name), inspection.json());
  write_file_atomically(settings.out, page);
  say(common, formatted("page: {}, {}{}{} kB", printable(settings.out), count,
                        count == 1 ? " sequence, " : " sequences, ", page.size() / 1000));
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"sequences", count},
                                      {"length", sequences.front().second.tokens.size()},
                                      {"bytes", page.size()}}),
          .notice = true};
}

}  // namespace

std::function<Result()> declare_inspect(CommandLine& line) {
  const auto settings = std::make_shared<InspectSettings>();
  line.add("RUN", &settings->runs, "folders of runs, of tasks with the same symbols; two are shown side by side",
           {.required = true});
  line.add("--out", &settings->out, "page to write, .html", {.required = true});
  settings->sequences.count = 0;
  settings->sequences.declare(line, "sequences; 0: up to 4, as many as make no more than 5 MB");
  line.add("--text", &settings->text, "a sequence as 'tally data' prints it, instead of a split",
           {.excludes = {"--split", "--count", "--start", "--tokens"}});
  line.add("--data", &settings->data,
           "on text: another folder that `tally prepare` made, with the same tokenizer; or token files of other "
           "programs, with the ids of that tokenizer");
  line.add("--token-type", &settings->token_type, formatted("of --data: {}", token_format_help),
           {.allowed = {std::begin(token_format_names), std::end(token_format_names)}});
  line.add(
      "--at", &settings->at, "on text: the token of the split at which the first sequence begins",
      {.least = 0, .most = std::numeric_limits<std::int32_t>::max(), .excludes = {"--text", "--tokens", "--start"}});
  line.add("--length", &settings->length, "tokens of a sequence, where the task has a length; 0: the run's",
           {.least = 0, .most = std::numeric_limits<std::int32_t>::max(), .excludes = {"--text", "--tokens"}});
  line.add("--mark", &settings->mark,
           "lines to point out, as a pattern of PCRE2; on text without it paragraphs, sections and functions");
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings, &common = line.common] { return run_inspect(*settings, common); };
}

}  // namespace tally
