// tally dump: writes the intermediate values of a model on a few sequences to one safetensors file, so that other
// programs can check them (tests/outside). N sequences of T tokens, H heads, V symbols:
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
#include <memory>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/io/safetensors.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/commands/parts/sequences.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/data/batch.hpp"

namespace tally {
namespace {

struct DumpSettings {
  std::string run, out, checkpoint = "newest";
  SequenceChoice sequences;
  bool gradients = false;
};

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
    for (const auto& [name, tensor] : attention_trace_parts) {
      const Tensor& value = trace[layer].*tensor;
      if (value.defined()) dump.tensors.emplace_back(formatted("blocks.{}.{}", layer, name), value);
    }
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
  const std::string split = settings.sequences.split_of(*trained.task);
  if (!split.empty()) {
    metadata.emplace("split", split);
    metadata.emplace("start", std::to_string(settings.sequences.start));
  }
  const Batch batch = collate(settings.sequences.read(*trained.task, [&](std::int64_t sequences, std::int64_t length) {
    check_fits(estimate_trace(config, *trained.task, sequences, length, settings.gradients));
  }));
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
  settings->sequences.declare(line);
  line.add("--gradients", &settings->gradients, "also the gradient of the loss for every parameter");
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings] { return run_dump(*settings); };
}

}  // namespace tally
