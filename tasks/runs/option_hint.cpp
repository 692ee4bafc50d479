#include "tasks/runs/option_hint.hpp"

#include <algorithm>
#include <cctype>

#include "core/error.hpp"
#include "nn/options.hpp"

namespace tally {
namespace {

// The last part of an option's name, and other names for the option, separated by spaces.
struct OtherNames {
  std::string_view option, others;
};

constexpr OtherNames other_names[] = {
    {"length",
     "seq-len seq-length sequence-length max-len max-length max-seq-len max-seq-length block-size context ctx n-ctx "
     "context-length context-window max-position-embeddings n-positions"},
    {"steps",
     "epochs epoch num-epochs num-train-epochs max-epochs iters iterations num-iterations max-iters max-steps "
     "num-steps train-steps training-steps n-steps"},
    {"batch",
     "batch-size bs train-batch-size per-device-train-batch-size global-batch-size micro-batch-size batch-sequences"},
    {"micro-batches", "gradient-accumulation-steps grad-accum grad-accumulation accumulate accumulate-grad-batches"},
    {"lr", "learning-rate max-lr max-learning-rate base-lr"},
    {"lr-floor", "min-lr min-learning-rate final-lr lr-min"},
    {"schedule", "scheduler lr-scheduler lr-scheduler-type lr-schedule decay-lr"},
    {"warmup", "warmup-steps warmup-iters lr-warmup-steps num-warmup-steps warmup-ratio"},
    {"weight-decay", "wd l2"},
    {"clip", "grad-clip clip-grad gradient-clipping max-grad-norm max-norm clip-norm gradient-clip-val"},
    {"beta1", "adam-beta1 b1"},
    {"beta2", "adam-beta2 b2"},
    {"eps", "adam-epsilon adam-eps epsilon"},
    {"name", "optim optimiser"},
    {"width", "d-model dim model-dim n-embd n-embed embed-dim embedding-dim hidden-size hidden-dim emb-dim"},
    {"layers", "n-layer n-layers num-layers num-hidden-layers depth n-blocks"},
    {"heads", "n-head n-heads num-heads nhead num-attention-heads attention-heads"},
    {"kv-heads", "num-key-value-heads n-kv-heads n-query-groups num-kv-heads"},
    {"hidden", "d-ff ffn-dim intermediate-size mlp-dim ff-dim dim-feedforward"},
    {"dropout", "drop attn-pdrop resid-pdrop dropout-p"},
    {"activation", "act hidden-act activation-function"},
    {"pe", "encoding position-encoding positional-encoding position-embedding pos-enc pos-emb position-embedding-type"},
    {"task", "dataset problem"},
    {"data", "data-dir data-path dataset train-file corpus"},
    {"eval-every", "eval-interval eval-steps evaluate-every val-interval test-every eval-freq"},
    {"eval-count", "eval-iters eval-samples max-eval-samples"},
    {"save-every", "save-interval save-steps checkpoint-interval checkpoint-every ckpt-interval save-freq"},
    {"log-every", "log-interval logging-steps log-steps print-every log-freq"},
    {"device", "gpu gpus cuda accelerator"},
    {"precision", "bf16 fp16 amp mixed-precision"},
    {"threads", "workers num-workers num-threads nproc cpus n-threads"},
    {"jobs", "parallel max-parallel workers num-workers"},
    {"seeds", "seed num-seeds n-seeds"},
    {"seed", "random-seed rng-seed manual-seed"},
    {"set", "grid param params override"},
    {"count", "max-new-tokens max-tokens new-tokens num-samples samples sequences num-sequences limit n"},
    {"out", "output output-file output-path output-dir out-dir"},
    {"preset", "recipe scale size"},
    {"force", "overwrite overwrite-output-dir"},
    {"vocabulary", "vocab-size vocab n-vocab"},
    {"checkpoint", "ckpt ckpt-path step"},
};

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }  // npos + 1 is 0

}  // namespace

std::string option_spelling(std::string_view name) {
  constexpr std::string_view american = "optimizer";
  std::string text(name);
  if (const std::size_t at = text.find(american); at != std::string::npos)
    text.replace(at, american.size(), "optimiser");
  return text;
}

std::string meant_option(std::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t longest = 100;  // a name may come from a file
  std::string name = option_spelling(given.substr(0, longest));
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  const std::string_view last = last_part(name);
  const auto by_last_part = [&](std::string_view wanted) {
    if (std::ranges::count(known, wanted) > 0) return std::string(wanted);  // the short name
    const auto found = std::ranges::find(known, wanted, [](std::string_view option) { return last_part(option); });
    return found == known.end() ? std::string() : *found;
  };
  if (const std::string same = by_last_part(last); !same.empty()) return same;
  for (const auto& [option, others] : other_names) {
    if (formatted(" {} ", others).find(formatted(" {} ", last)) == std::string::npos) continue;
    if (const std::string other = by_last_part(option); !other.empty()) return other;
  }
  if (const std::string near = nearest_name(name, known); !near.empty()) return near;
  std::vector<std::string> last_parts;
  for (const std::string& option : known) last_parts.emplace_back(last_part(option));
  return by_last_part(nearest_name(last, last_parts));
}

}  // namespace tally
