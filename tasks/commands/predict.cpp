// tally predict: prints a trained model's answer to a text with its probability, and the symbols that the last one
// attends to.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

struct PredictSettings {
  std::string run, checkpoint = "newest";
  std::vector<std::string> words;
  std::int64_t top = 4, symbols = 1;
};

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

// The answer, candidates by falling probability, and the keys that the last query attends to by falling weight, for
// each head.
JsonValue predict(const TrainedModel& trained, const std::vector<std::int32_t>& tokens, std::int64_t symbols,
                  std::int64_t top) {
  const std::vector<std::string>& vocabulary = trained.task->vocabulary();
  const auto length = static_cast<std::int64_t>(tokens.size());
  const NoGrad no_grad;
  std::vector<AttentionTrace> trace;
  const Tensor logits = trained.model->forward(Tensor::from(tokens, {1, length}), {.trace = &trace});
  const std::vector<double> probabilities =
      softmax(logits.detached_select(0, 0).detached_select(0, length - 1).to(DType::f64)).to_vector<double>();

  const std::vector<std::size_t> best = largest(probabilities, top);
  JsonValue candidates = JsonValue::array(), attention = JsonValue::array();
  for (const std::size_t id : best) {
    candidates.push(JsonValue::object({{"symbol", vocabulary[id]}, {"probability", probabilities[id]}}));
  }
  std::vector<std::int32_t> answer{static_cast<std::int32_t>(best.front())};
  double probability = probabilities[best.front()];  // of the complete answer
  if (symbols > 1) {
    std::vector<std::int32_t> prompt = tokens;
    prompt.push_back(answer.front());
    const Generated more = generate(*trained.model, Tensor::from(prompt, {1, length + 1}), symbols - 1);
    for (const std::int32_t symbol : more.symbols.to_vector<std::int32_t>()) answer.push_back(symbol);
    for (const double one : more.probabilities.to_vector<double>()) probability *= one;
  }
  for (std::size_t layer = 0; layer < trace.size(); ++layer) {
    if (!trace[layer].weights.defined()) continue;
    for (std::int64_t head = 0; head < trace[layer].weights.size(1); ++head) {
      const std::vector<double> weights = last_row(trace[layer].weights, head);
      std::vector<double> positions(weights.size());  // as counted by the gates; 0 without gates
      if (trace[layer].positions.defined()) positions = last_row(trace[layer].positions, head);
      JsonValue keys = JsonValue::array();
      for (const std::size_t index : largest(weights, top)) {
        const std::string& symbol = vocabulary[static_cast<std::size_t>(tokens[index])];
        JsonValue key = JsonValue::object({{"place", index}, {"symbol", symbol}, {"weight", weights[index]}});
        if (positions[index] > 0) key.set("position", positions[index]);
        keys.push(std::move(key));
      }
      attention.push(JsonValue::object({{"layer", layer}, {"head", head}, {"keys", std::move(keys)}}));
    }
  }
  return JsonValue::object({{"answer", trained.task->text(next_token_example(std::move(answer)))},
                            {"probability", probability},
                            {"candidates", std::move(candidates)},
                            {"attention", std::move(attention)}});
}

std::string prediction_text(const JsonValue& prediction) {
  std::string text = formatted("{}  {}\n", prediction.string("answer"), percent_text(prediction.real("probability")));
  const std::vector<JsonValue>& candidates = prediction.elements("candidates");
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    text += formatted("{}{} {}", i == 1 ? "then " : ", ", candidates[i].string("symbol"),
                      percent_text(candidates[i].real("probability")));
  }
  text += "\n";
  const std::vector<JsonValue>& heads = prediction.elements("attention");
  if (!heads.empty()) text += "\nthe last symbol attends to (place from 0, symbol, weight; p: position by the gates)\n";
  for (const JsonValue& head : heads) {
    text += formatted("layer {} head {}:", head.integer("layer"), head.integer("head"));
    for (const JsonValue& key : head.elements("keys")) {
      char position[32] = "";
      if (key.contains("position")) std::snprintf(position, sizeof position, " p %.1f", key.real("position"));
      text += formatted("  {} {} {}{}", key.integer("place"), key.string("symbol"), percent_text(key.real("weight")),
                        position);
    }
    text += "\n";
  }
  return text;
}

Result run_predict(const PredictSettings& settings, bool quiet) {
  const std::string text = joined(settings.words, " ");
  const TrainedModel trained = load_trained(settings.run, settings.checkpoint);
  const std::vector<std::int32_t> tokens = as_usage([&] { return trained.task->encode(text); });
  if (tokens.empty()) throw UsageError("[predict] the text is empty");
  const RunConfig& config = trained.folder.config();
  const auto length = static_cast<std::int64_t>(tokens.size());
  check_fits(estimate_trace(config, *trained.task, 1, length, false));
  check_fits(estimate_evaluation(config, *trained.task, 1, length + settings.symbols - 1));
  JsonValue prediction = predict(trained, tokens, settings.symbols, settings.top);
  prediction.set("text", text).set("step", trained.step);
  std::string answer = quiet ? prediction.string("answer") + "\n" : prediction_text(prediction);
  return {.value = std::move(prediction), .text = std::move(answer)};
}

}  // namespace

std::function<Result()> declare_predict(CommandLine& line) {
  const auto settings = std::make_shared<PredictSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  line.add("TEXT", &settings->words, "a sequence as 'tally data' prints it, up to where the answer is wanted",
           {.required = true});
  line.add("--symbols", &settings->symbols, "how many to answer; each is fed back", {.least = 1, .most = 1 << 20});
  line.add("--top", &settings->top, "candidates, and keys of each head, that are shown", {.least = 1, .most = 1000});
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings, &common = line.common] { return run_predict(*settings, common.quiet); };
}

}  // namespace tally
