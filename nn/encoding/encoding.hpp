// The interface of a position encoding. One encoding is one file in nn/position/: a class with the hooks it needs, its
// options, its paper, and one closing registration line. The build finds the file by its name.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "nn/attention/kv_cache.hpp"
#include "nn/encoding/constants.hpp"
#include "nn/forward_context.hpp"
#include "nn/layers/init.hpp"
#include "nn/options.hpp"

namespace tally {

struct ModelOptions;

// Who owns a parameter: one per layer (blocks.N.position.<encoding>.<name>) or one for the whole model
// (position.<encoding>.<name>).
enum class Scope { layer, model };

// The inputs of an encoding's constructor, which is called once for every layer.
struct EncodingSetup {
  // For layer 0 of a model with sequences up to max_length. Parameters come from `start`, which must outlive the setup.
  static EncodingSetup of(const ModelOptions& model, std::int64_t max_length, const Initializer& start);

  std::int64_t width = 0;              // D
  std::int64_t heads = 0;              // H of the heads it acts on: all heads of the layer, or a group of them
  std::int64_t key_heads = 0;          // G of the keys and values that these heads share, H/G each
  std::int64_t head_width = 0;         // d; a projection of x for these heads is [H d, D]
  std::int64_t layer = 0;              // from 0
  std::int64_t first_layer = 0;        // the first layer that this encoding acts on
  std::int64_t max_length = 0;         // T_max: longest sequence that learned tables must hold
  bool bias = true;                    // whether projections of x have a bias, as q, k and v have
  const Initializer* start = nullptr;  // for its rules of thumb: start->linear_weight(in)
  DType dtype = DType::f32;
  Device device;

  // A parameter with its start values. With Scope::model the first layer makes it and the others get the same tensor.
  Tensor parameter(std::string_view name, const Shape& shape, const Fill& fill, Scope scope = Scope::layer) const {
    return make_parameter(name, shape, fill, scope);
  }
  std::function<Tensor(std::string_view name, const Shape& shape, const Fill& fill, Scope scope)> make_parameter;
  // The weight [rows, D] of a linear layer of x, with its usual start values, and its bias, undefined without `bias`.
  Tensor linear_weight(std::string_view name, std::int64_t rows) const;
  Tensor linear_bias(std::string_view name, std::int64_t rows) const;

  std::shared_ptr<Constants> constants = std::make_shared<Constants>();  // one for all layers

  // The same on the counting device (core/device/meta.cpp), with parameters that hold no numbers.
  EncodingSetup counting() const;
};

// The inputs of one layer's hooks, for the tokens first .. first + T - 1. Except during generation, these are all
// tokens.
struct AttentionInput {
  const Tensor& x;  // [B, T, D], the input of the projections
  const Tensor& q;  // [B, H, T, d]; q, k and v are as projected, not rotated
  const Tensor& k;  // [B, G, T, d]: query head h has the keys and values of key head floor(h G/H)
  const Tensor& v;
  double scale;              // 1/sqrt(d)
  std::int64_t first = 0;    // index of the first of these tokens
  KvCache* cache = nullptr;  // during generation
  std::shared_ptr<Constants> constants = std::make_shared<Constants>();
  Tensor rotated_q = {};  // q, k and v after all of `rotate`, for `score`; undefined before
  Tensor rotated_k = {};
  Tensor rotated_v = {};
  AttentionMask mask = {};
  bool materialised = false;  // all pairs are in memory (composed attention): shapes that save memory are useless
  std::string owner = {};     // prefix of names in the cache, so that two encodings may use the same name
  TokenPositions at = {};     // for positions()

  // q as rotated or as projected.
  const Tensor& query(bool rotated) const;
  // The k of the matmul with q.
  const Tensor& key() const { return rotated_k.defined() ? rotated_k : k; }
  // The v of the matmul with the weights.
  const Tensor& value() const { return rotated_v.defined() ? rotated_v : v; }
  // The type of results computed with q, which may be bf16 itself (EncodingTraits::reads_heads).
  DType dtype() const { return compute_type(q.dtype()); }
  // Number of tokens up to the last of these.
  std::int64_t keys() const { return first + q.size(2); }
  // Appends `rows` of these tokens to the cache, along `axis`, and returns the rows of all tokens. Without a cache it
  // returns `rows`. An encoding caches each tensor of earlier tokens by one call, under a name of its own.
  Tensor keep(std::string_view name, const Tensor& rows, int axis) const;
  // A cached tensor without a row per token, which the encoding replaces at every step. Null without a cache.
  Tensor* cached_state(std::string_view name) const;
  // The positions of these tokens, f64 [T], in tokens from the start of the text: first .. first + T - 1, unless
  // training draws them at random. A formula of positions reads them here, not from `first`.
  Tensor positions() const;
  // Whether they are drawn at random: ascending numbers, perhaps no whole ones. Then all tokens are here.
  bool has_random_positions() const { return at.drawn.defined(); }
  // number(n) or a row of element(n, column, columns) for each distance n from 0: [keys] or [keys, columns], computed
  // once for all layers and steps (nn/encoding/constants.hpp), by default in dtype(). Functions are plain, or lambdas
  // without captures. Options are passed as `values`, or applied to the result, as learned numbers are.
  Tensor distances() const;
  Tensor distances(Constants::Number number, std::optional<DType> type = {}) const;
  Tensor distances(Constants::Element element, std::int64_t columns) const;
  Tensor distances(Constants::ElementOfValues element, std::int64_t columns, std::vector<double> values) const;
  // number(n) of the number n of unmasked keys of each token: [T]
  Tensor keys_seen(Constants::Number number, std::optional<DType> type = {}) const;
};

// Facts about an encoding that combinations, attention and the transformer use.
struct EncodingTraits {
  // Stated at the end of the registration line, if they differ from these.

  // It computes with x, q, k or v, which are then not bf16. False if it reads x only by linear(), uses q, k and v only
  // as operands of attention's own matmuls (q.k, gates, tables) or in rotate_pairs(), and leaves the output unchanged.
  bool reads_heads = true;
  // `rotate` needs q, k, v as projected (a norm of keys, a shift by a token): it precedes all rotations.
  bool before_rotations = false;
  // `rotate` makes q and k wider than a head.
  bool widens_heads = false;
  // `score` multiplies the rotated q or k with vectors of its own, which are as wide as a head.
  bool needs_head_width = false;
  // `score` depends on the shapes of the other parts: it follows them.
  bool after_scores = false;
  // The change of keys depends on queries: heads that share their keys share it, which separate ones would not.
  bool keys_follow_queries = false;
  // Gradients are not the derivative, but follow a rule of their own.
  bool straight_through = false;
  // It computes with the number of tokens between query and key, other than by the shapes of a distance (Toeplitz).
  bool reads_distances = false;
  // Its form, and with it the memory of a step, depends on learned numbers: on the counting device it takes the form
  // that needs most.
  bool memory_is_learned = false;
  bool companion = false;             // `tally check` combines every other encoding with it
  std::string_view also_called = {};  // another published name

  // Derived from the hooks that a class has.

  bool embeds = false, rotates = false, scores = false;
  bool replaces_softmax = false;  // by `weights`, materialised
  bool mixes = false;             // the whole attention is its own, materialised

  // Derived from the Score on the counting device, of an encoding that EncodingChoice::make has made.

  bool materialised = false;  // tiles do not support it

  // Whether attention is computed in composed form.
  bool is_composed() const { return replaces_softmax || mixes || materialised; }
};

// Moves the numbers of a parameter into [low, high], in place: for `project`.
void clamp_parameter(Tensor parameter, double low, double high);

class Encoding {
 public:
  virtual ~Encoding() = default;
  // EncodingChoice::make sets both.
  EncodingTraits traits;
  std::shared_ptr<Constants> constants = std::make_shared<Constants>();

  // Throws Error naming the limit if sequences of this length cannot be encoded.
  virtual void check_length(std::int64_t length) const { (void)length; }
  // The length up to which a text of `length` tokens can grow while its first tokens keep their values. Beyond it every
  // token is encoded differently, so saved rows (AttentionInput::keep) are useless.
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  virtual std::int64_t same_up_to(std::int64_t length) const { return (void)length, never; }
  // Number of rows at the end of a text that change when the text continues; only for materialised rules. During
  // generation a token gets the values of the text up to it.
  virtual std::int64_t rows_by_end() const { return 0; }
  // Whether a query gives the key of its own token no weight: it then needs a window of at least 2.
  virtual bool excludes_own_key() const { return false; }
  // Number of learned rows that are indexed by position or distance. Rows beyond the longest training sequence are
  // never trained.
  virtual std::int64_t rows_by_position() const { return 0; }
  // Embeddings [B, T, D] of the tokens at these positions, before the first layer.
  virtual Tensor embed(const Tensor& x, const TokenPositions& at) const { return (void)at, x; }
  // q [B, H, T, d], k and v [B, G, T, d] before the product.
  virtual void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const {
    (void)q, (void)k, (void)v, (void)in;
  }
  // Adds shapes to the score.
  virtual void score(const AttentionInput& in, Score& score) const { (void)in, (void)score; }
  // Attention weights [B, H, T, T] from logits, instead of the softmax. `mask` is the attention mask, bool [1, T, T]
  // (nn/attention/composed.hpp), or [B, H, T, T] with a policy, which may mask pairs. Logits of masked pairs are
  // meaningless; their weights must be 0.
  virtual Tensor weights(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const;
  // Attention output [B, H, T, d] before the output projection.
  virtual Tensor finish(const Tensor& output, const AttentionInput& in) const { return (void)in, output; }
  // The whole attention [B, H, T, d] in composed operations, for formulas that fit no other hook.
  virtual Tensor mix(const AttentionInput& in) const { return (void)in, Tensor(); }
  // Clamps parameters to their range, in place; called after each update.
  virtual void project() const {}
};

// An encoding and the heads of a layer that it acts on, first .. first + count - 1, with their key heads.
struct HeadGroup {
  std::int64_t first = 0, count = 0;
  std::int64_t first_key = 0, key_count = 0;
  std::unique_ptr<Encoding> encoding;
  AttentionMask mask = {};
};
// The groups that cover a layer's heads in order, usually one.
using LayerEncoding = std::vector<HeadGroup>;

// A flag of encodings whose `score` multiplies q with vectors of its own: it then uses the rotated q. It has an effect
// only in a combination with a rotation.
inline constexpr std::string_view rotated_query_option = "rotated-query";

struct EncodingEntry {
  std::string name;
  std::string summary;  // one line
  std::string formula;
  std::string paper;
  std::unique_ptr<Options> (*make_options)() = nullptr;
  std::unique_ptr<Encoding> (*make)(const EncodingSetup& setup, const Options& options) = nullptr;
  EncodingTraits traits = {};
  // The list `static constexpr std::array after_training` of the options' struct, if it has one: options that a trained
  // model may change for longer texts.
  std::span<const std::string_view> after_training = {};
  // The same for `score_flags`: flags without effect unless another encoding changes the score, too.
  std::span<const std::string_view> score_flags = {};

  bool has_rotated_query() const;
};

// The shapes of the score.
Score score_of(const Encoding& encoding, const AttentionInput& in);

// All encodings, by name. Generated by the build.
std::span<const EncodingEntry* const> encoding_registry();
// Throws Error with the nearest known name.
const EncodingEntry& find_encoding(std::string_view name);
// "; here it is 'none'" for a name under which an encoding is published; empty for any other.
std::string other_name_hint(std::string_view published);

// The stated traits, with the traits that follow from the hooks of the class.
template <class EncodingType>
constexpr EncodingTraits with_hooks_of(EncodingTraits traits) {
  traits.embeds = !std::is_same_v<decltype(&EncodingType::embed), decltype(&Encoding::embed)>;
  traits.scores = !std::is_same_v<decltype(&EncodingType::score), decltype(&Encoding::score)>;
  traits.rotates = !std::is_same_v<decltype(&EncodingType::rotate), decltype(&Encoding::rotate)>;
  traits.replaces_softmax = !std::is_same_v<decltype(&EncodingType::weights), decltype(&Encoding::weights)>;
  traits.mixes = !std::is_same_v<decltype(&EncodingType::mix), decltype(&Encoding::mix)>;
  const bool finishes = !std::is_same_v<decltype(&EncodingType::finish), decltype(&Encoding::finish)>;
  traits.reads_heads |= traits.replaces_softmax || traits.mixes || finishes;
  return traits;
}

// An entry of the registry; tests make their own. EncodingType is constructed from (const EncodingSetup&, const
// OptionsType&), (const EncodingSetup&) or ().
template <class OptionsType, class EncodingType>
EncodingEntry encoding_entry(std::string name, std::string summary, std::string formula, std::string paper,
                             const EncodingTraits& stated = {}) {
  constexpr EncodingTraits hooks = with_hooks_of<EncodingType>({});
  static_assert(!hooks.mixes || !(hooks.rotates || hooks.scores || hooks.replaces_softmax),
                "`mix` computes the whole attention: it calls no other hook except `embed` and `finish`");
  EncodingEntry entry{std::move(name), std::move(summary), std::move(formula), std::move(paper)};
  entry.traits = with_hooks_of<EncodingType>(stated);
  entry.make_options = []() -> std::unique_ptr<Options> { return std::make_unique<OptionsType>(); };
  entry.make = [](const EncodingSetup& setup, const Options& options) -> std::unique_ptr<Encoding> {
    (void)setup, (void)options;
    if constexpr (std::is_constructible_v<EncodingType, const EncodingSetup&, const OptionsType&>) {
      return std::make_unique<EncodingType>(setup, dynamic_cast<const OptionsType&>(options));
    } else if constexpr (std::is_constructible_v<EncodingType, const EncodingSetup&>) {
      return std::make_unique<EncodingType>(setup);
    } else {
      return std::make_unique<EncodingType>();
    }
  };
  if constexpr (requires { OptionsType::after_training; }) entry.after_training = OptionsType::after_training;
  if constexpr (requires { OptionsType::score_flags; }) entry.score_flags = OptionsType::score_flags;
  return entry;
}

// Closing line of an encoding's file, outside any namespace, with the traits that differ from the defaults at its end:
//   TALLY_ENCODING(alibi, AlibiOptions, Alibi, "summary", "formula", "paper", .reads_heads = false);
#define TALLY_ENCODING(stem, OptionsType, EncodingType, summary, formula, paper, ...)                             \
  namespace tally::registry {                                                                                     \
  const EncodingEntry& encoding_##stem() {                                                                        \
    static const EncodingEntry entry =                                                                            \
        encoding_entry<OptionsType, EncodingType>(name_from_stem(#stem), summary, formula, paper, {__VA_ARGS__}); \
    return entry;                                                                                                 \
  }                                                                                                               \
  }                                                                                                               \
  static_assert(true)

}  // namespace tally
