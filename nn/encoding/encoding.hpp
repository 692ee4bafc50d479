// The interface of a position encoding. One encoding is one file in nn/position/: a class with the hooks it needs, its
// options, its paper, and one closing registration line. The build finds the file by its name.
#pragma once

#include <array>
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

// What an encoding is built from, once for every layer.
struct EncodingSetup {
  // Of layer 0 in a model that takes sequences up to max_length; parameters come from `start`, which must outlive it.
  static EncodingSetup of(const ModelOptions& model, std::int64_t max_length, const Initializer& start);

  std::int64_t width = 0;       // D
  std::int64_t heads = 0;       // H of the heads it acts on: all of the layer, or a group of them
  std::int64_t key_heads = 0;   // G of the keys and values that these heads share, H/G each
  std::int64_t head_width = 0;  // d; a projection of x for these heads is [H d, D]
  std::int64_t layers = 0;
  std::int64_t layer = 0;              // this one, from 0
  std::int64_t first_layer = 0;        // the first that this encoding acts on
  std::int64_t max_length = 0;         // T_max: longest sequence that learned tables must hold
  bool bias = true;                    // whether projections of x have one, as those of q, k and v
  const Initializer* start = nullptr;  // for its rules of thumb: start->linear_weight(in)
  DType dtype = DType::f32;
  Device device;

  // A parameter with its start values. With Scope::model the first layer makes it and the others get the same tensor.
  std::function<Tensor(std::string_view name, const Shape& shape, const Fill& fill, Scope scope)> parameter;

  std::shared_ptr<Constants> constants = std::make_shared<Constants>();  // one for all layers
};

// What an encoding sees of one layer. q, k, v as projected (not rotated), of the tokens first .. first + T - 1; unless
// a text is generated token by token these are all of them, and first is 0.
struct AttentionInput {
  const Tensor& x;  // [B, T, D] what the projections saw
  const Tensor& q;  // [B, H, T, d]
  const Tensor& k;  // [B, G, T, d]: query head h has the keys and values of key head floor(h G/H)
  const Tensor& v;
  double scale;              // 1/sqrt(d)
  std::int64_t first = 0;    // index of the first of these tokens
  KvCache* cache = nullptr;  // while generating
  std::shared_ptr<Constants> constants = std::make_shared<Constants>();
  Tensor rotated_q = {};  // q, k and v after all of `rotate`, for `score`; undefined before
  Tensor rotated_k = {};
  Tensor rotated_v = {};
  Tensor kept_k = {};       // rotated_k behind those of earlier tokens
  AttentionMask mask = {};  // which of the keys up to itself a query sees
  // Whether all pairs are written out in memory (composed attention), where shapes that spare it are of no use.
  bool materialised = false;
  // Whether `score` may bring a product in the place of q.k (Score::moved): in tiles, of all tokens at once.
  bool replaces_product = false;
  std::string owner = {};  // goes before the names in the cache, so that two encodings may use the same

  // The q that sees rotations, or q as projected.
  const Tensor& query(bool rotated) const { return rotated && rotated_q.defined() ? rotated_q : q; }
  // The k of the product.
  const Tensor& key() const { return rotated_k.defined() ? rotated_k : k; }
  // The same of all tokens whose keys are there: as keep_keys of key().
  const Tensor& all_keys() const { return kept_k.defined() ? kept_k : key(); }
  // The v that weights are multiplied with.
  const Tensor& value() const { return rotated_v.defined() ? rotated_v : v; }
  // What is computed with q, which may be bf16 itself (EncodingTraits::reads_heads).
  DType dtype() const { return widened(q.dtype()); }
  // Number of tokens up to the last of these: keys that the last query sees.
  std::int64_t keys() const { return first + q.size(2); }
  // `rows`, what these tokens give, behind what earlier ones gave under this name, each once: all tokens along `axis`.
  // What an encoding needs of earlier tokens goes through here; without a cache it comes back as it is.
  Tensor keep(std::string_view name, const Tensor& rows, int axis) const;
  // The same for what stands beside the keys, along axis 2, and is read by pairs that are seen alone (keys of gates, a
  // column bias): as many rows come back as the product has keys, those that a window hides for good being left out.
  Tensor keep_keys(std::string_view name, const Tensor& rows) const;
  // What an encoding left under this name with the tokens before these, where it is no row for each of them: to be put
  // in its place for those that come. Null without a cache.
  Tensor* kept(std::string_view name) const;
  // For each distance n that a key can have, from 0, n, number(n) or number(n, values), or a row of element(n, column,
  // columns): [keys] or [keys, columns], computed once for all layers and steps (nn/encoding/constants.hpp); in that of
  // q (dtype()) if none is given. These are plain functions, or lambdas that capture nothing: what they need of options
  // goes through `values`, and what is learned joins by operations on the result.
  Tensor distances() const;
  Tensor distances(Constants::Number number, std::optional<DType> type = {}) const;
  Tensor distances(Constants::NumberWith number, const std::vector<double>& values,
                   std::optional<DType> type = {}) const;
  Tensor distances(Constants::Element element, std::int64_t columns) const;
  // number(n) of the n keys that each of these tokens sees: [T]
  Tensor keys_seen(Constants::Number number, std::optional<DType> type = {}) const;
};

// What is known of an encoding without computing anything.
struct EncodingTraits {
  // Said in the line that registers it, where it is not as here.
  bool scans = false;           // `score` brings a scan: a running sum along the keys, or a policy
  bool scans_alone = false;     // one where no other part does, and does without where one does: it acts last
  bool normalises = false;      // `score` brings another rule for the weights than the softmax
  bool brings_product = false;  // `score` brings a product beside that of q and k
  bool by_policy = false;  // its scan is a policy (core/attention/score_mod.hpp); with a factor of rows: materialised
  bool materialised = false;       // it brings a policy that tiles do not have, so that attention is materialised
  bool takes_score_alone = false;  // its scan is a policy that reads q.k; with a product: materialised
  // It computes with x, q, k or v. Not where it reads x by linear() alone, and q, k and v by nothing but hands them on
  // as operands of attention's own products (q k, gates, tables, products by distance) or turns them by rotate_pairs(),
  // and leaves the output as it is: these may be bf16 then.
  bool reads_heads = true;
  // What `rotate` does must see q, k, v as projected (a norm of keys, a shift by a token): in a sum it comes before all
  // that turn them by position.
  bool before_rotations = false;
  // What becomes of keys follows from queries: heads that share their keys share it, which separate ones would not.
  bool keys_follow_queries = false;
  // Gradients that are not the derivative, but what its file says.
  bool straight_through = false;
  // Its form, and with it the memory of a step, depends on numbers that are learned: on a device that only counts
  // (core/device/meta.cpp) it takes the form that needs most.
  bool memory_is_learned = false;
  std::string_view also_called = {};  // a name under which it is published
  // A sum that is computed as it is written, but is hardly what somebody means, and why.
  struct Doubt {
    std::string_view other, why;
  } doubtful_beside = {};

  // Found from the hooks that a class has.
  bool embeds = false, rotates = false;
  bool scores = false;            // something joins the scores, or takes the place of their softmax
  bool replaces_softmax = false;  // by `weights`, materialised
  bool mixes = false;             // the whole attention is its own, materialised

  // Whether attention is computed in composed form.
  bool is_composed() const { return replaces_softmax || mixes || materialised; }
};

class Encoding {
 public:
  virtual ~Encoding() = default;
  // Of its class, or of all parts of a sum; and what the setup had. EncodingChoice::make sets both.
  EncodingTraits traits;
  std::shared_ptr<Constants> constants = std::make_shared<Constants>();

  // Throws Error naming the limit when sequences of this length cannot be encoded.
  virtual void check_length(std::int64_t length) const { (void)length; }
  // The length up to which a text of `length` tokens can grow while its first tokens keep their values. Beyond it every
  // token is encoded differently, so saved rows (AttentionInput::keep) are useless.
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  virtual std::int64_t same_up_to(std::int64_t length) const { return (void)length, never; }
  // Rows at the end of a text that are others where it goes on; of rules that are materialised, of which all is
  // computed anew with every token of a text that is generated: what a token gets there is that of the text up to it.
  virtual std::int64_t rows_by_end() const { return 0; }
  // Whether a query gives the key of its own token no weight, so that a window of 1 leaves it nothing to attend to.
  virtual bool excludes_own_key() const { return false; }
  // Whether `score` sets a row_factor, which is of all that a sum makes.
  virtual bool multiplies_logits() const { return false; }
  // Learned rows that are looked up by a token's position or distance: those beyond the longest sequence of a training
  // keep their start values.
  virtual std::int64_t rows_by_position() const { return 0; }
  // Embeddings [B, T, D] of the tokens that stand there, before the first layer.
  virtual Tensor embed(const Tensor& x, const TokenPositions& at) const { return (void)at, x; }
  // q [B, H, T, d], k and v [B, G, T, d] before the product.
  virtual void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const {
    (void)q, (void)k, (void)v, (void)in;
  }
  // Adds what joins the scores.
  virtual void score(const AttentionInput& in, Score& score) const { (void)in, (void)score; }
  // Attention weights [B, H, T, T] from logits, in place of the softmax. `seen` bool [1, T, T] (nn/attention/mask.hpp),
  // or [B, H, T, T] beside a policy, which may leave pairs out: logits of pairs that are not seen mean nothing and may
  // be any number; their weights must be 0.
  virtual Tensor weights(const Tensor& logits, const Tensor& seen, const AttentionInput& in) const;
  // Attention output [B, H, T, d] before the output projection.
  virtual Tensor finish(const Tensor& output, const AttentionInput& in) const { return (void)in, output; }
  // The whole attention [B, H, T, d] in composed operations, for ideas that fit nowhere else.
  virtual Tensor mix(const AttentionInput& in) const { return (void)in, Tensor(); }
  // Brings parameters back, in place, into the range that they are for; called after each update.
  virtual void project() const {}
};

// An encoding and those heads of a layer that it acts on, first .. first + count - 1, with the heads of keys that these
// share.
struct HeadGroup {
  std::int64_t first = 0, count = 0;
  std::int64_t first_key = 0, key_count = 0;
  std::unique_ptr<Encoding> encoding;
  AttentionMask mask = {};  // what their queries see
};
// What acts on one layer: groups that cover its heads in order, most often one.
using LayerEncoding = std::vector<HeadGroup>;

// A flag that acts only in a sum with a rotation, where publications leave it open; what the encoding does with it and
// without, as said behind its name: "'s position term sees q as rotated".
struct OpenFlag {
  std::string_view option, with, without;
};
// Of encodings with a product of q beside the score (AttentionInput::query).
inline constexpr std::array<OpenFlag, 1> query_beside_rotations{
    {{"rotated-query", "'s position term sees q as rotated", "'s position term sees q as projected"}}};

struct EncodingEntry {
  std::string name;
  std::string summary;  // one line
  std::string formula;
  std::string paper;
  std::unique_ptr<Options> (*make_options)() = nullptr;
  std::unique_ptr<Encoding> (*make)(const EncodingSetup& setup, const Options& options) = nullptr;
  EncodingTraits traits = {};
  // What there is to say of the model around it, one line, or nothing: Class::note(model), where the class has it.
  std::string (*note)(const ModelOptions& model) = nullptr;
  // Whether with these options `score` adds something to the logits: Class::joins_score(options), where the class has
  // it. Null where that follows from the traits: every `score` does, but for one that normalises without a scan.
  bool (*joins_score)(const Options& options) = nullptr;
  // What is special of options, by name: of the options' struct `static constexpr std::array<std::string_view, N>
  // after_training`, and so on, where it has that. Those that a trained model may take otherwise, for texts longer than
  // those it was trained on; flags that act only beside a rotation, or beside what joins the score.
  std::vector<std::string_view> after_training = {}, beside_scores = {};
  std::vector<OpenFlag> beside_rotations = {};
};

// What joins the scores. Throws Error where it has a scan or a softmax_rule that the traits do not say.
Score score_of(const Encoding& encoding, const AttentionInput& in);

// All encodings, by name. Generated by the build.
std::span<const EncodingEntry* const> encoding_registry();
// Throws Error with the nearest known name.
const EncodingEntry& find_encoding(std::string_view name);
// "; here it is 'none'" for a name under which an encoding is published; empty for any other.
std::string other_name_hint(std::string_view published);

// One of several encodings that act together on the same heads.
struct SumPart {
  std::string name;
  std::unique_ptr<Encoding> encoding;
};
// All of them, each in turn, but for `rotate`: those that come before rotations are first. Throws Error naming the
// parts that cannot act together; `where` goes before what it says: "" or "in 1-3:cope+rope: ".
std::unique_ptr<Encoding> sum_of_encodings(std::vector<SumPart> parts, const std::string& where);

// What the author says, and what follows from the hooks that the class has.
template <class EncodingType>
constexpr EncodingTraits with_hooks_of(EncodingTraits said) {
  said.embeds = !std::is_same_v<decltype(&EncodingType::embed), decltype(&Encoding::embed)>;
  said.scores = !std::is_same_v<decltype(&EncodingType::score), decltype(&Encoding::score)>;
  said.rotates = !std::is_same_v<decltype(&EncodingType::rotate), decltype(&Encoding::rotate)>;
  said.replaces_softmax = !std::is_same_v<decltype(&EncodingType::weights), decltype(&Encoding::weights)>;
  said.mixes = !std::is_same_v<decltype(&EncodingType::mix), decltype(&Encoding::mix)>;
  return said;
}

// Whether it may say that it reads no heads.
template <class EncodingType>
constexpr bool leaves_heads(const EncodingTraits& has) {
  return !has.replaces_softmax && !has.mixes &&
         std::is_same_v<decltype(&EncodingType::finish), decltype(&Encoding::finish)>;
}

// Whether what the author says goes together with the hooks that the class has.
template <class EncodingType>
constexpr bool fits_hooks(const EncodingTraits& said) {
  const EncodingTraits has = with_hooks_of<EncodingType>(said);
  const bool scores = has.scores,
             repeats = said.embeds || said.scores || said.rotates || said.replaces_softmax || said.mixes;
  return !repeats && (has.rotates || !has.before_rotations) &&
         (scores || !(has.scans || has.scans_alone || has.normalises || has.brings_product)) &&
         (has.scans || !(has.takes_score_alone || has.materialised)) && !(has.scans && has.scans_alone) &&
         !(has.replaces_softmax && has.normalises) && (has.reads_heads || leaves_heads<EncodingType>(has)) &&
         !(has.mixes && (has.rotates || scores || has.replaces_softmax));
}

// An entry of the registry; tests make some of their own. EncodingType is made from (const EncodingSetup&, const
// OptionsType&), (const EncodingSetup&) or (); with a static note(const ModelOptions&) it has something to say of the
// model.
template <class OptionsType, class EncodingType>
EncodingEntry encoding_entry(std::string name, std::string summary, std::string formula, std::string paper,
                             const EncodingTraits& said = {}) {
  EncodingEntry entry{std::move(name), std::move(summary), std::move(formula), std::move(paper)};
  entry.traits = with_hooks_of<EncodingType>(said);
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
  if constexpr (requires(const ModelOptions& model) { EncodingType::note(model); }) entry.note = &EncodingType::note;
  if constexpr (requires(const OptionsType& own) { EncodingType::joins_score(own); }) {
    entry.joins_score = [](const Options& options) {
      return EncodingType::joins_score(dynamic_cast<const OptionsType&>(options));
    };
  }
  const auto take = [](auto& list, const auto& of_options) { list.assign(of_options.begin(), of_options.end()); };
  (void)take;
  if constexpr (requires { OptionsType::after_training; }) take(entry.after_training, OptionsType::after_training);
  if constexpr (requires { OptionsType::beside_rotations; })
    take(entry.beside_rotations, OptionsType::beside_rotations);
  if constexpr (requires { OptionsType::beside_scores; }) take(entry.beside_scores, OptionsType::beside_scores);
  return entry;
}

// Closing line of an encoding's file, outside any namespace, with the traits that are not the usual ones at its end:
//   TALLY_ENCODING(cope, CopeOptions, Cope, "summary", "formula", "paper", .scans = true);
#define TALLY_ENCODING(stem, OptionsType, EncodingType, summary, formula, paper, ...)                              \
  namespace tally::registry {                                                                                      \
  const EncodingEntry& encoding_##stem() {                                                                         \
    static constexpr EncodingTraits said{__VA_ARGS__};                                                             \
    static_assert(fits_hooks<EncodingType>(said),                                                                  \
                  "traits and hooks contradict each other: before_rotations needs `rotate`, scans and normalises " \
                  "need `score`; normalises cannot stand beside `weights`, nor `mix` beside another hook of "      \
                  "attention; what follows from the hooks is not said again");                                     \
    static const EncodingEntry entry =                                                                             \
        encoding_entry<OptionsType, EncodingType>(name_from_stem(#stem), summary, formula, paper, said);           \
    return entry;                                                                                                  \
  }                                                                                                                \
  }                                                                                                                \
  static_assert(true)

}  // namespace tally
