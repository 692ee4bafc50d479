// tally dump: what a model computes on a few sequences, in one safetensors file that other programs can check
// (tests/outside). N sequences of T tokens, H heads, V symbols:
//   tokens, targets i32 [N, T]    loss_mask, score_mask bool [N, T]    logits [N, T, V]    loss, the mean where
//   loss_mask is set    blocks.N.weights [N, H, T, T]    blocks.N.gates, blocks.N.positions where the encoding has them
//   gradients.model.<parameter>, those of the loss
// Logits, loss and gradients come from a pass as in training, but without dropout; weights, gates and positions from
// one whose attention is written out. At a kink of the interpolation the positions decide which derivative is meant.
#include <memory>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "tasks/batch.hpp"
#include "tasks/estimate.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/output_file.hpp"
#include "tasks/runner/trained_model.hpp"

namespace tally {
namespace {

struct DumpSettings {
  std::string run, split, out, tokens, checkpoint = "newest";
  std::int64_t count = 4, start = 0;
  bool gradients = false;
};

// Sequences of one's own [N, T] (or [T]): position t predicts token t+1, the last predicts nothing.
Batch batch_of_tokens(const std::string& path, std::int64_t vocabulary) {
  const Tensor file = read_npy(path);
  check(is_integer(file.dtype()), "dump", path, " must hold i32 or i64 token ids, not ", file.dtype());
  check(file.rank() == 1 || file.rank() == 2, "dump", path, " must be [sequences, tokens], got ", file.shape());
  const Shape shape = file.rank() == 2 ? file.shape() : Shape{1, file.size(0)};
  check(shape[0] >= 1 && shape[1] >= 2, "dump", path, " must hold at least one sequence of two tokens, got ",
        file.shape());
  const std::vector<std::int64_t> ids = file.to(DType::i64).to_vector<std::int64_t>();
  std::vector<Example> examples;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t t = 0; t < shape[1]; ++t) {
      const std::int64_t id = ids[static_cast<std::size_t>(n * shape[1] + t)];
      check(0 <= id && id < vocabulary, "dump", path, ": token ", t, " of sequence ", n, " is ", id,
            ", the vocabulary has ids 0 to ", vocabulary - 1);
      tokens.push_back(static_cast<std::int32_t>(id));
    }
    Example example = next_token_example(std::move(tokens));
    std::fill(example.loss_mask.begin(), example.loss_mask.end() - 1, std::uint8_t{1});
    example.score_mask = example.loss_mask;
    examples.push_back(std::move(example));
  }
  return collate(examples);
}

struct Dump {
  NamedTensors tensors;
  double loss;
};

Dump compute_dump(SequenceModel& model, const Batch& batch, bool with_gradients) {
  const TracedPass pass = trace_pass(model, batch, with_gradients);
  const std::vector<AttentionTrace>& trace = pass.layers;
  Dump dump{{{"tokens", batch.tokens},
             {"targets", batch.targets},
             {"loss_mask", batch.loss_mask},
             {"score_mask", batch.score_mask},
             {"logits", pass.logits.detach()},
             {"loss", pass.loss.detach()}},
            pass.loss.item()};
  for (std::size_t layer = 0; layer < trace.size(); ++layer) {
    const auto add = [&](const char* name, const Tensor& value) {
      if (value.defined()) dump.tensors.emplace_back(concat("blocks.", layer, ".", name), value);
    };
    add("weights", trace[layer].weights);
    add("gates", trace[layer].gates);
    add("positions", trace[layer].positions);
  }
  if (!with_gradients) return dump;
  for (const auto& [name, parameter] : model.parameters()) {
    const Tensor d_parameter = gradient(parameter);
    dump.tensors.emplace_back("gradients.model." + name, d_parameter.defined()
                                                             ? d_parameter
                                                             : Tensor::zeros(parameter.shape(), parameter.dtype()));
  }
  return dump;
}

Result run_dump(const DumpSettings& settings) {
  check_output(settings.out);
  const TrainedModel trained = load_trained(settings.run, settings.checkpoint);
  const RunConfig& config = trained.folder.config();
  Metadata metadata{{"format", "tally dump"},
                    {"task", config.task->name},
                    {"pe", config.encoding.text()},
                    {"step", std::to_string(trained.step)}};
  const auto check_dump_fits = [&](std::int64_t sequences, std::int64_t length) {
    check_fits(estimate_trace(config, *trained.task, sequences, length, settings.gradients));
  };
  Batch batch;
  if (!settings.tokens.empty()) {
    batch = batch_of_tokens(settings.tokens, static_cast<std::int64_t>(trained.task->vocabulary().size()));
    check_dump_fits(batch.tokens.size(0), batch.tokens.size(1));
  } else {
    const std::string split = settings.split.empty() ? trained.task->splits().at(1).name : settings.split;
    const Split from = as_usage([&] { return trained.task->split_holding(split, settings.start, settings.count); });
    check_dump_fits(settings.count, from.length);
    batch = collate(examples_of(*trained.task, split, settings.start, settings.start + settings.count));
    metadata.emplace("split", split);
    metadata.emplace("start", std::to_string(settings.start));
  }
  const Dump dump = compute_dump(*trained.model, batch, settings.gradients);
  write_safetensors(settings.out, dump.tensors, metadata);
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"step", trained.step},
                                      {"sequences", batch.tokens.size(0)},
                                      {"length", batch.tokens.size(1)},
                                      {"tensors", dump.tensors.size()},
                                      {"loss", dump.loss}}),
          .notice = true};
}

}  // namespace

std::function<Result()> declare_dump(CommandLine& line) {
  const auto settings = std::make_shared<DumpSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  line.add("--out", &settings->out, "safetensors file to write", {.required = true});
  line.add("--split", &settings->split, "where sequences come from; the first evaluation split");
  line.add("--count", &settings->count, "sequences", {.least = 1, .most = endless_count});
  line.add("--start", &settings->start, "number of the first one", {.least = 0, .most = endless_count - 1});
  line.add("--tokens", &settings->tokens, ".npy file of token ids [sequences, tokens] instead of a split",
           {.excludes = {"--split", "--count", "--start"}});
  line.add("--gradients", &settings->gradients, "also the gradient of the loss for every parameter");
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings] { return run_dump(*settings); };
}

}  // namespace tally
