// tally inspect: summarises the gates and attention of a trained model, or prints its answer to a text. Writes a page
// for a browser, or the activations as a safetensors file. For N sequences of T tokens, H heads, V symbols the file
// has:
//   tokens, targets                i32 [N, T].
//   loss_mask, score_mask          bool [N, T].
//   logits                         [N, T, V].
//   loss                           the mean where loss_mask is set.
//   blocks.N.weights               [N, H, T, T], the attention weights.
//   gradients.model.<parameter>    gradients of the loss.
// The encoding may add the following, in the shape of the weights (nn/forward_context.hpp):
//   blocks.N.gates                 contextual positions only.
//   blocks.N.positions             contextual positions only.
//   blocks.N.position_weights      softmax of the position terms of the scores.
//   blocks.N.decay                 from forget gates.
//   blocks.N.breaks                from stick-breaking.
// Encodings that add no term to the scores have no position_weights: rotations, absolute embeddings, stick-breaking
// without another encoding. The key bias of transformer-xl is such a term and is included, although it does not depend
// on the position.
//
// Logits, loss and gradients come from a training pass without dropout; the attention values come from a pass with
// reference attention. At a kink of the interpolation the positions decide which derivative is meant.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/data/task.hpp"
#include "tasks/inspect/explain.hpp"
#include "tasks/inspect/inspect.hpp"
#include "tasks/print/page.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/text/prepare/token_file.hpp"

namespace tally {
namespace {

struct SequenceChoice {
  std::string split, tokens, text;    // the name of a split (the first evaluation split if empty), a file, a text
  std::int64_t count = 0, start = 0;  // count 0: the default of the output

  // Declares --split, --count, --start, --tokens and --text.
  void declare(CommandLine& line);
  // The selected split; empty for a file and a text.
  std::string split_of(const Task& task) const;
  // Reads the sequences: `most` of them, or all of a split that has fewer, if the user set no count. It first calls
  // `check_fits` with their number and the longest length. Throws UsageError for sequences that the split does not
  // have, Error for a file without sequences of the vocabulary.
  std::vector<Example> read(const Task& task, std::int64_t most,
                            const std::function<void(std::int64_t sequences, std::int64_t length)>& check_fits) const;
};

// A sequence of the user: position t predicts token t+1, the last predicts nothing.
Example example_of(std::vector<std::int32_t> tokens) {
  Example example = next_token_example(std::move(tokens));
  std::fill(example.loss_mask.begin(), example.loss_mask.end() - 1, std::uint8_t{1});
  return example;
}

// The sequences [N, T] (or [T]) of a file.
std::vector<Example> examples_in_file(const std::string& path, std::int64_t vocabulary) {
  const Tensor file = read_npy(path);
  check(is_integer(file.dtype()), "tokens", "{} must hold i32 or i64 token ids, not {}", path, file.dtype());
  check(file.rank() == 1 || file.rank() == 2, "tokens", "{} must be [sequences, tokens], got {}", path, file.shape());
  const Shape shape = file.rank() == 2 ? file.shape() : Shape{1, file.size(0)};
  check(shape[0] >= 1 && shape[1] >= 2, "tokens", "{} must hold at least one sequence of two tokens, got {}", path,
        file.shape());
  const std::vector<std::int64_t> ids = file.to(DType::i64).to_vector<std::int64_t>();
  std::vector<Example> examples;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t t = 0; t < shape[1]; ++t) {
      const std::int64_t id = ids[static_cast<std::size_t>(n * shape[1] + t)];
      check(0 <= id && id < vocabulary, "tokens", "{}: token {} of sequence {} is {}, the vocabulary has ids 0 to {}",
            path, t, n, id, vocabulary - 1);
      tokens.push_back(static_cast<std::int32_t>(id));
    }
    examples.push_back(example_of(std::move(tokens)));
    examples.back().score_mask = examples.back().loss_mask;
  }
  return examples;
}

void SequenceChoice::declare(CommandLine& line) {
  line.add("--split", &split, "split of the sequences; default: the first evaluation split");
  line.add("--count", &count,
           "sequences; 0: 100 for the summary, 4 for a file, or all if there are fewer, and at most 5 MB for a page",
           {.least = 1, .most = endless_count});
  line.add("--start", &start, "index of the first sequence", {.least = 0, .most = endless_count - 1});
  line.add("--tokens", &tokens, ".npy file of token ids [sequences, tokens] instead of a split",
           {.excludes = {"--split", "--count", "--start"}});
  line.add("--text", &text,
           "a sequence in the form of 'tally describe TASK --sequences 1', instead of a split; without --out, prints "
           "the answer",
           {.excludes = {"--split", "--count", "--start", "--tokens"}});
}

std::string SequenceChoice::split_of(const Task& task) const {
  return !tokens.empty() || !text.empty() ? "" : split.empty() ? evaluation_splits(task).front().name : split;
}

std::vector<Example> SequenceChoice::read(
    const Task& task, std::int64_t most,
    const std::function<void(std::int64_t sequences, std::int64_t length)>& check_fits) const {
  const std::string name = split_of(task);
  if (name.empty()) {
    std::vector<Example> examples;
    if (!tokens.empty()) {
      examples = examples_in_file(tokens, static_cast<std::int64_t>(task.vocabulary().size()));
    } else {
      std::vector<std::int32_t> ids = as_usage([&] { return task.encode(text); });
      if (ids.size() < 2) throw UsageError("[inspect] the text must have at least two symbols");
      examples.push_back(example_of(std::move(ids)));
    }
    check_fits(std::ssize(examples), std::ssize(examples.front().tokens));
    return examples;
  }
  std::int64_t number = count;
  if (number == 0) {
    const std::int64_t all = as_usage([&]() -> const Split& { return task.split(name); }).count;
    number = all == 0 ? most : std::clamp<std::int64_t>(all - start, 1, most);
  }
  const Split from = as_usage([&] { return task.split_holding(name, start, number); });
  check_fits(number, from.length);
  return examples_of(task, from.name, start, start + number);
}

// A page of a few megabytes opens quickly in any browser.
constexpr std::int64_t comfortable_bytes = 4'500'000;

struct InspectSettings {
  std::vector<std::string> runs;
  std::string out, checkpoint = "newest", data, token_type, mark, queries = "scored";
  std::int64_t length = 0, at = 0, top = 4;
  bool gradients = false;
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

void check_has_attention(const TrainedModel& trained) {
  const RunConfig& config = trained.folder.config();
  check(config.model.is_transformer(), "inspect", "'{}' is an {}, which has no attention to look at",
        trained.folder.path(), config.label());
}

Result summarise(const InspectSettings& settings, const TrainedModel& trained, const Task& task) {
  check_has_attention(trained);
  const RunConfig& config = trained.folder.config();
  const std::string split = settings.sequences.split_of(task);
  std::int64_t batch = 4;  // reference attention needs the memory
  const std::vector<Example> examples = settings.sequences.read(task, 100, [&](std::int64_t count, auto length) {
    batch = std::min(batch, count);
    check_fits(estimate_trace(config, task, batch, length, false));
  });
  const Explanation told = explain(*trained.model, task, examples, batch);
  JsonValue json = JsonValue::object({{"run", trained.folder.path()},
                                      {"step", trained.step},
                                      {"split", split},
                                      {"start", settings.sequences.start},
                                      {"sequences", examples.size()},
                                      {"wrong", told.evaluation.wrong},
                                      {"scored", told.evaluation.scored},
                                      {"tables", explanation_json(told)}});
  std::string text = formatted("{}, {}, step {}, {}: {} sequences, wrong {}\n\n{}", printable(trained.folder.path()),
                               config.encoding.text(), trained.step, split.empty() ? "the file" : split,
                               examples.size(), rate_text(told.evaluation.wrong, told.evaluation.scored, "tokens"),
                               explanation_text(told, settings.queries == "all" ? Queries::all : Queries::scored));
  return {.value = std::move(json), .text = std::move(text)};
}

// The last row of one head's matrix.
std::vector<double> last_row(const Tensor& squares, std::int64_t head) {
  const Tensor square = squares.detached_select(0, 0).detached_select(0, head);
  return square.detached_select(0, square.size(0) - 1).to(DType::f64).to_vector<double>();
}

// Indices of the `count` largest values, largest first. Ties keep their order.
std::vector<std::size_t> largest(const std::vector<double>& values, std::int64_t count) {
  std::vector<std::size_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::stable_sort(indices.begin(), indices.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  indices.resize(std::min(indices.size(), static_cast<std::size_t>(count)));
  return indices;
}

// The answer to the text, candidates by falling probability, and the keys that the last query of each head attends to
// by falling weight.
Result answer(const InspectSettings& settings, const TrainedModel& trained, const Task& task) {
  const std::vector<std::int32_t> tokens = as_usage([&] { return task.encode(settings.sequences.text); });
  const auto length = static_cast<std::int64_t>(tokens.size());
  if (length == 0) throw UsageError("[inspect] the text is empty");
  check_fits(estimate_trace(trained.folder.config(), task, 1, length, false));
  const NoGrad no_grad;
  std::vector<AttentionTrace> trace;
  const Tensor logits = trained.model->forward(Tensor::from(tokens, {1, length}), {.trace = &trace});
  const std::vector<double> probabilities =
      softmax(logits.detached_select(0, 0).detached_select(0, length - 1).to(DType::f64)).to_vector<double>();

  const std::vector<std::string>& vocabulary = task.vocabulary();
  JsonValue candidates = JsonValue::array(), attention = JsonValue::array();
  std::string text;
  for (const std::size_t id : largest(probabilities, settings.top)) {
    const std::size_t before = candidates.elements().size();
    text += formatted("{}{} {}",
                      before == 0   ? "answer: "
                      : before == 1 ? ", then "
                                    : ", ",
                      printable(vocabulary[id]), percent_text(probabilities[id]));
    candidates.push(JsonValue::object({{"symbol", vocabulary[id]}, {"probability", probabilities[id]}}));
  }
  TableRows rows;
  for (std::size_t layer = 0; layer < trace.size(); ++layer) {
    if (!trace[layer].weights.defined()) continue;
    for (std::int64_t head = 0; head < trace[layer].weights.size(1); ++head) {
      const std::vector<double> weights = last_row(trace[layer].weights, head);
      std::vector<double> positions(weights.size());  // as counted by the gates; 0 without gates
      if (trace[layer].positions.defined()) positions = last_row(trace[layer].positions, head);
      JsonValue keys = JsonValue::array();
      std::vector<std::string> cells{formatted("layer {} head {}", layer, head)};
      for (const std::size_t place : largest(weights, settings.top)) {
        const std::string& symbol = vocabulary[static_cast<std::size_t>(tokens[place])];
        cells.push_back(formatted("{} {}, {}", place, printable(symbol), percent_text(weights[place])));
        JsonValue key = JsonValue::object({{"place", place}, {"symbol", symbol}, {"weight", weights[place]}});
        if (positions[place] > 0) {
          cells.back() += formatted(", p {}", short_number(std::round(10 * positions[place]) / 10));
          key.set("position", positions[place]);
        }
        keys.push(std::move(key));
      }
      rows.push_back(std::move(cells));
      attention.push(JsonValue::object({{"layer", layer}, {"head", head}, {"keys", std::move(keys)}}));
    }
  }
  text += "\n";
  if (!rows.empty()) {
    std::vector<std::string> header{"head"};
    while (header.size() < rows[0].size()) header.push_back(formatted("key {}", header.size()));
    rows.insert(rows.begin(), std::move(header));
    text += formatted("\nattention of the last symbol: place from 0 and symbol, weight, p: position by the gates\n{}",
                      markdown_table(rows));
  }
  return {.value = JsonValue::object({{"text", settings.sequences.text},
                                      {"step", trained.step},
                                      {"candidates", std::move(candidates)},
                                      {"attention", std::move(attention)}}),
          .text = std::move(text)};
}

NamedTensors activations_of(SequenceModel& model, const Batch& batch, bool with_gradients) {
  const TracedPass pass = trace_pass(model, batch, with_gradients);
  const std::vector<AttentionTrace>& trace = pass.layers;
  NamedTensors all{{"tokens", batch.tokens},         {"targets", batch.targets},       {"loss_mask", batch.loss_mask},
                   {"score_mask", batch.score_mask}, {"logits", pass.logits.detach()}, {"loss", pass.loss.detach()}};
  for (std::size_t layer = 0; layer < trace.size(); ++layer) {
    for (const auto& [name, tensor] : attention_trace_parts) {
      const Tensor& value = trace[layer].*tensor;
      if (value.defined()) all.emplace_back(formatted("blocks.{}.{}", layer, name), value);
    }
  }
  if (!with_gradients) return all;
  for (const auto& [name, parameter] : model.parameters()) {
    const Tensor d_parameter = gradient(parameter);
    all.emplace_back("gradients.model." + name,
                     d_parameter.defined() ? d_parameter : Tensor::zeros(parameter.shape(), parameter.dtype()));
  }
  return all;
}

Result write_activations(const InspectSettings& settings, const TrainedModel& trained, const Task& task) {
  const RunConfig& config = trained.folder.config();
  Metadata metadata{{"format", "tally activations"},
                    {"task", config.task->name},
                    {"pe", config.encoding.text()},
                    {"step", std::to_string(trained.step)}};
  const std::string split = settings.sequences.split_of(task);
  if (!split.empty()) {
    metadata.emplace("split", split);
    metadata.emplace("start", std::to_string(settings.sequences.start));
  }
  const Batch batch = collate(settings.sequences.read(task, 4, [&](std::int64_t sequences, std::int64_t length) {
    check_fits(estimate_trace(config, task, sequences, length, settings.gradients));
  }));
  const NamedTensors tensors = activations_of(*trained.model, batch, settings.gradients);
  write_safetensors(settings.out, tensors, metadata);
  const auto loss = std::ranges::find(tensors, "loss", &NamedTensors::value_type::first);
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"step", trained.step},
                                      {"sequences", batch.tokens.size(0)},
                                      {"length", batch.tokens.size(1)},
                                      {"tensors", tensors.size()},
                                      {"loss", loss->second.item()}}),
          .notice = true};
}

Result write_page(const InspectSettings& settings, const std::vector<TrainedModel>& trained, const Task& task) {
  std::vector<InspectedRun> runs;
  for (const TrainedModel& one : trained) {
    check_has_attention(one);
    check(one.task->vocabulary() == task.vocabulary(), "inspect",
          "'{}' has another vocabulary than '{}': no sequence can be shown to both", one.folder.path(),
          trained.front().folder.path());
    runs.push_back({one.folder.path(), one.folder.config(), *one.model, one.step});
  }
  const auto check_each_fits = [&](std::int64_t, std::int64_t length) {
    for (const InspectedRun& run : runs) {
      check_length({run.config.model, run.config.encoding, static_cast<std::int64_t>(task.vocabulary().size()),
                    trained.front().task->max_length(), run.config.dtype()},
                   length);
      check_fits(estimate_trace(run.config, task, 1, length, false));
    }
  };
  std::vector<Example> examples = settings.sequences.read(task, 4, check_each_fits);
  if (!settings.sequences.text.empty()) examples[0].score_mask.assign(examples[0].tokens.size(), 0);
  std::vector<std::int32_t> tokens;
  for (const Example& example : examples) tokens.insert(tokens.end(), example.tokens.begin(), example.tokens.end());
  Inspection inspection(task, runs, tokens, marks_of(settings, *trained.front().folder.config().task));
  const std::string split = settings.sequences.split_of(task);
  const bool is_limited = settings.sequences.count == 0 && !split.empty();
  std::int64_t count = 0;
  for (const Example& example : examples) {
    if (is_limited && count > 0 && inspection.packed_bytes() * (count + 1) / count > comfortable_bytes) break;
    std::string name = settings.sequences.text.empty()
                           ? formatted("{} {}", split.empty() ? "sequence" : split, settings.sequences.start + count)
                           : "text";
    if (settings.at > 0) name += formatted(", from token {}", settings.at);
    inspection.add(example, name);
    ++count;
  }
  std::string title = "tally inspect:";
  for (const InspectedRun& run : runs) title += formatted(" {}", run.config.encoding.text());
  const std::string page = make_page(
      "inspect.html", formatted("{}, {}", title, trained.front().folder.config().task->name), inspection.json());
  write_file_atomically(settings.out, page);
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"sequences", count},
                                      {"length", examples.front().tokens.size()},
                                      {"bytes", page.size()}}),
          .notice = true};
}

Result run_inspect(const InspectSettings& settings) {
  const std::string ending = settings.out.empty() ? "" : known_ending(settings.out, {".html", ".htm", ".safetensors"});
  const bool is_page = ending.starts_with(".htm");
  if (!ending.empty()) check_output(settings.out);
  if (settings.runs.size() > 1 && !is_page) {
    throw UsageError("[inspect] only a page shows several runs; give it a name with --out PAGE.html");
  }
  std::vector<TrainedModel> trained;
  for (const std::string& run : settings.runs) {
    trained.push_back(load_trained(run, settings.checkpoint, {}, settings.data));
  }
  const std::unique_ptr<Task> other = other_task(settings, trained.front());
  const Task& task = other != nullptr ? *other : *trained.front().task;
  if (is_page) return write_page(settings, trained, task);
  if (!ending.empty()) return write_activations(settings, trained.front(), task);
  return settings.sequences.text.empty() ? summarise(settings, trained.front(), task)
                                         : answer(settings, trained.front(), task);
}

}  // namespace

std::function<Result()> declare_inspect(CommandLine& line) {
  const auto settings = std::make_shared<InspectSettings>();
  line.add("RUN", &settings->runs, "folder of a run; a page can show several runs whose tasks have the same symbols",
           {.required = true});
  line.add("--out", &settings->out, "file to write: .html, a page for a browser; .safetensors, all activations");
  settings->sequences.declare(line);
  line.add("--data", &settings->data,
           "on text: another folder made by `tally prepare` with the same tokenizer, or token files of other programs "
           "with the same ids");
  line.add("--token-type", &settings->token_type, formatted("of --data: {}", token_format_help),
           {.allowed = {std::begin(token_format_names), std::end(token_format_names)}});
  line.add(
      "--at", &settings->at, "on text: first token of the first sequence",
      {.least = 0, .most = std::numeric_limits<std::int32_t>::max(), .excludes = {"--text", "--tokens", "--start"}});
  line.add("--length", &settings->length, "sequence length, if the task has one; 0: the run's",
           {.least = 0, .most = std::numeric_limits<std::int32_t>::max(), .excludes = {"--text", "--tokens"}});
  line.add("--mark", &settings->mark,
           "on a page: mark lines that match this PCRE2 pattern; default on text: paragraphs, sections and functions",
           {.needs = {"--out=*.html|*.htm"}});
  line.add("--gradients", &settings->gradients, "also store the gradient of the loss for every parameter",
           {.needs = {"--out=*.safetensors"}});
  line.add("--queries", &settings->queries, "for the summary: average over scored queries, or over all",
           {.allowed = {"scored", "all"}, .excludes = {"--out", "--text"}});
  line.add("--top", &settings->top, "for the answer: number of candidates, and of keys per head",
           {.least = 1, .most = 1000, .excludes = {"--out"}, .needs = {"--text"}});
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings] { return run_inspect(*settings); };
}

}  // namespace tally
