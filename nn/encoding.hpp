// The interface of a position encoding. One encoding is one file in nn/position/: a class with the hooks it needs, its
// options, its paper, and one closing registration line. The build finds the file by its name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "nn/init.hpp"
#include "nn/options.hpp"

namespace tally {

struct ModelOptions;

// Who owns a parameter: one per layer (blocks.N.position.<encoding>.<name>) or one for the whole model
// (position.<encoding>.<name>).
enum class Scope { layer, model };

// What an encoding is built from, once for every layer.
class EncodingSetup {
 public:
  std::int64_t width = 0;       // D
  std::int64_t heads = 0;       // H of the heads it acts on: all of the layer, or a group of them
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
};

// What one layer keeps of the tokens it has seen while a text is generated token by token, by name.
using LayerCache = std::map<std::string, Tensor, std::less<>>;

// What an encoding sees of one layer. q, k, v as projected (not rotated), of the tokens first .. first + T - 1; unless
// a text is generated token by token these are all of them, and first is 0.
struct AttentionInput {
  const Tensor& x;  // [B, T, D] what the projections saw
  const Tensor& q;  // [B, H, T, d]
  const Tensor& k;
  const Tensor& v;
  double scale;                 // 1/sqrt(d)
  std::int64_t first = 0;       // place of the first of these tokens
  LayerCache* cache = nullptr;  // while generating
  Tensor rotated_q = {};        // q and v after all of `rotate`, for `score`; undefined before
  Tensor rotated_v = {};
  std::string owner = {};  // goes before the names in the cache, so that two encodings may use the same

  // The q that sees rotations, or q as projected.
  const Tensor& query(bool rotated) const { return rotated && rotated_q.defined() ? rotated_q : q; }
  // The v that weights are multiplied with.
  const Tensor& value() const { return rotated_v.defined() ? rotated_v : v; }
  // Number of tokens up to the last of these: keys that the last query sees.
  std::int64_t keys() const { return first + q.size(2); }
  // `rows`, what these tokens give, behind what earlier ones gave under this name: all tokens along `axis`. What an
  // encoding needs of earlier tokens goes through here; without a cache it comes back as it is.
  Tensor keep(std::string_view name, const Tensor& rows, int axis) const;
};

// Numbers kept for each token of each sequence, and for each pair of tokens of all sequences together.
struct KeptNumbers {
  double token = 0, pair = 0;
};

class Encoding {
 public:
  virtual ~Encoding() = default;
  // Throws Error naming the limit when sequences of this length cannot be encoded.
  virtual void check_length(std::int64_t length) const { (void)length; }
  // Embeddings [B, T, D] of the tokens first .. first + T - 1, before the first layer.
  virtual Tensor embed(const Tensor& x, std::int64_t first) const { return (void)first, x; }
  // q, k, v [B, H, T, d] before the product.
  virtual void rotate(Tensor& q, Tensor& k, Tensor& v, const AttentionInput& in) const {
    (void)q, (void)k, (void)v, (void)in;
  }
  // Whether what `rotate` does must see q, k, v as projected (a norm of keys, a shift by a token): in a sum it comes
  // before all that turn them by place.
  virtual bool before_rotations() const { return false; }
  // Adds what joins the scores.
  virtual void score(const AttentionInput& in, Score& score) const { (void)in, (void)score; }
  // Whether `weights` is this encoding's own: then attention is computed in composed form. One with `weights` must
  // have this too, which TALLY_ENCODING sees to.
  virtual bool replaces_softmax() const { return false; }
  // Whether the gradients of `weights` are not its derivative, but what its file says.
  virtual bool straight_through() const { return false; }
  // Attention weights [B, H, T, T] from logits (where replaces_softmax).
  virtual Tensor weights(const Tensor& logits) const { return causal_softmax(logits); }
  // Attention output [B, H, T, d] before the output projection.
  virtual Tensor finish(const Tensor& output, const AttentionInput& in) const { return (void)in, output; }
  // The whole attention [B, H, T, d] in composed operations, for ideas that fit nowhere else; undefined otherwise.
  virtual Tensor mix(const AttentionInput& in) const { return (void)in, Tensor(); }
  // What it keeps until backward beside the shapes of `score`, for sequences of this length. The estimate of memory
  // asks for it, since it asks `score` about a single token only.
  virtual KeptNumbers kept_numbers(std::int64_t length) const { return (void)length, KeptNumbers{}; }
  // Whether any of this reads numbers back from the device, to decide what to compute: training steps are then not
  // captured as a graph.
  virtual bool reads_back() const { return false; }
  // Brings parameters back, in place, into the range that they are for; called after each update.
  virtual void project() const {}
  // By how many distances its RowToeplitz tables, all together, end before a text of `length` tokens does. The estimate
  // of memory takes each for as wide as the text, since it asks `score` about a single token only.
  virtual std::int64_t distances_without_row(std::int64_t length) const { return (void)length, 0; }
};

// An encoding and those heads of a layer that it acts on: first .. first + count - 1.
struct HeadGroup {
  std::int64_t first = 0, count = 0;
  std::unique_ptr<Encoding> encoding;
};
// What acts on one layer: groups that cover its heads in order, most often one.
using LayerEncoding = std::vector<HeadGroup>;

struct EncodingEntry {
  std::string name;
  std::string summary;  // one line
  std::string formula;
  std::string paper;
  std::unique_ptr<Options> (*make_options)();
  std::unique_ptr<Encoding> (*make)(const EncodingSetup& setup, const Options& options);
  bool rotates = false;  // whether it has the hook `rotate`
  // What there is to say of the model around it, one line, or nothing: Class::note(model), where the class has it.
  std::string (*note)(const ModelOptions& model) = nullptr;
};

// What joins the scores. Throws Error where a scan and `weights` both take the place of the softmax.
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
// parts that cannot act together, some when it is first asked what joins the scores. `where` goes before what the
// errors say:
// "" or "in 1-3:cope+rope: ".
std::unique_ptr<Encoding> sum_of_encodings(std::vector<SumPart> parts, std::string where);

// EncodingType::note, or null for one without.
template <class EncodingType>
constexpr auto note_of() -> std::string (*)(const ModelOptions&) {
  if constexpr (requires(const ModelOptions& model) { EncodingType::note(model); }) {
    return &EncodingType::note;
  } else {
    return nullptr;
  }
}

// Whether a class with weights of its own has replaces_softmax too, without which tiled attention would go on with the
// softmax and say nothing.
template <class EncodingType>
constexpr bool says_that_it_weighs() {
  constexpr bool weighs = !std::is_same_v<decltype(&EncodingType::weights), decltype(&Encoding::weights)>;
  constexpr bool says =
      !std::is_same_v<decltype(&EncodingType::replaces_softmax), decltype(&Encoding::replaces_softmax)>;
  return says || !weighs;
}

// Closing line of an encoding's file, outside any namespace:
//   TALLY_ENCODING(rope, RopeOptions, Rope, "summary", "formula", "paper");
// EncodingType needs a constructor (const EncodingSetup&, const OptionsType&).
#define TALLY_ENCODING(stem, OptionsType, EncodingType, summary_, formula_, paper_)                \
  namespace tally::registry {                                                                      \
  const EncodingEntry& encoding_##stem() {                                                         \
    static_assert(says_that_it_weighs<EncodingType>(),                                             \
                  "an encoding with `weights` also needs `replaces_softmax`, which returns true"); \
    static const EncodingEntry entry{                                                              \
        name_from_stem(#stem),                                                                     \
        summary_,                                                                                  \
        formula_,                                                                                  \
        paper_,                                                                                    \
        []() -> std::unique_ptr<Options> { return std::make_unique<OptionsType>(); },              \
        [](const EncodingSetup& setup, const Options& options) -> std::unique_ptr<Encoding> {      \
          return std::make_unique<EncodingType>(setup, dynamic_cast<const OptionsType&>(options)); \
        },                                                                                         \
        !std::is_same_v<decltype(&EncodingType::rotate), decltype(&Encoding::rotate)>,             \
        note_of<EncodingType>()};                                                                  \
    return entry;                                                                                  \
  }                                                                                                \
  }                                                                                                \
  static_assert(true)

}  // namespace tally
