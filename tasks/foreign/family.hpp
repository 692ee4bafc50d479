// Kinds of models that other libraries store as config.json and safetensors: GPT-2, LLaMA, Qwen2, GPT-NeoX (Pythia).
// Each entry defines the meaning of the keys of config.json and maps the tensors to ours. Files are read, checked
// and written elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tasks/foreign/settings.hpp"

namespace tally {

// A model that config.json describes, as options of tally.
struct ForeignModel {
  std::string encoding;                                            // "rope"
  std::vector<std::pair<std::string, std::string>> settings = {};  // {"model.width", "768"}, {"pe.rope.base", "10000"}
  std::int64_t vocabulary = 0;                                     // V
  std::int64_t positions = 0;                                      // tokens that it accepts, according to the file
  bool learned_positions = false;                                  // positions are rows of a table

  template <class Value>
  void set(std::string_view name, const Value& value) {
    settings.emplace_back(name, formatted("{}", value));
  }
};

// How a tensor of the file stores one or three of our tensors, which are [out, in] or [out].
enum class Layout {
  same,
  transposed,    // [in, out]
  side_by_side,  // [in, out of the first | of the second | of the third]; [out ...]
  by_head,       // [H, 3, d, in] as [H 3 d, in]; [H 3 d]
};

struct TensorRow {
  std::string theirs;             // "transformer.h.0.attn.c_attn.weight"
  std::vector<std::string> ours;  // "blocks.0.attention.query.weight", ...
  Layout layout = Layout::same;
};

// A weight of every layer, and whether it has a bias.
enum class WithBias { never, always, optional };  // optional: as model.bias
struct LayerWeight {
  std::string_view theirs;             // "attn.c_attn"
  std::vector<std::string_view> ours;  // "attention.query", ...
  WithBias bias = WithBias::always;
  Layout layout = Layout::same;
};

struct Family {
  std::string_view name;                     // as after --as: "neox"
  std::string_view model_type;               // in config.json: "gpt_neox"
  std::string_view architecture;             // "GPTNeoXForCausalLM"
  std::string_view positions_key;            // "max_position_embeddings"
  std::string_view prefix;                   // of all tensors except the head; some files omit it
  std::vector<std::string_view> buffers;     // ends of names of tensors without learned values
  std::string_view head;                     // the output projection; optional if tied
  std::vector<std::string_view> zeros = {};  // ends of our names of parameters that the family lacks; they are 0
  // Reads every key that changes the function, and refuses unsupported values.
  ForeignModel (*read)(ForeignSettings& settings);
  // Writes the options as keys. Throws Error naming the first option that the format cannot express.
  JsonValue (*write)(OwnSettings& settings);
  std::vector<TensorRow> embeddings;
  std::string_view layers;  // "transformer.h.", before a layer's number
  std::vector<LayerWeight> weights;
  LayerWeight norm;  // after the layers
};

extern const Family gpt2_family, llama_family, neox_family, qwen2_family;
std::span<const Family* const> families();
// Throws Error with the existing names.
const Family& find_family(std::string_view name);

// All tensors of a model, with the output projection if the model has a separate one.
std::vector<TensorRow> tensor_rows(const Family& family, const ModelOptions& options);

// "gelu_new" for "gelu-tanh". Throws for an unsupported activation.
std::string activation_from_foreign(ForeignSettings& settings, std::string_view key, std::string_view usual);
std::string foreign_activation(OwnSettings& settings);
// Sizes that default to a function of others.
std::int64_t hidden_of(OwnSettings& settings);
double norm_eps_of(OwnSettings& settings, double usual);

// Settings of rotary positions in config.json. Both existing forms are read: a single object `rope_parameters`, or
// rope_theta (rotary_emb_base), rope_scaling, rotary_pct. The second form is written, because all versions read it,
// with the type under both of its names and all lengths. Contradictory settings are refused. If readers differ, or if a
// length is missing, ForeignSettings::notes has a line.
struct RopeDefaults {
  std::int64_t head_width = 0, positions = 0;
  double fraction = 1;  // default fraction of a head's width that is rotated
};

// Sets the options of rope. Throws Error for unsupported settings, and if the two forms contradict each other.
void read_rope(ForeignSettings& settings, const RopeDefaults& defaults, ForeignModel& model);

// Width of a head that is rotated.
std::int64_t rotary_dims_of(OwnSettings& settings, std::int64_t head_width);
// rope_scaling, null for none, and the related lengths, including max_position_embeddings. Requires the layout that all
// these formats have.
void write_rope_scaling(OwnSettings& settings, JsonValue& json);

}  // namespace tally
