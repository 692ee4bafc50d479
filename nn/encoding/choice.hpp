// Which encodings act where, as --pe names them:
//
//   choice        = assignment {"," assignment}
//   assignment    = [layers ":"] sum ["[" see {"," see} "]"] ["@" heads]
//   sum           = name {"+" name}
//   layers, heads = number | number "-" number, from 0
//   see           = ("window" | "chunk" | "first") "=" number
//
//   cope+rope                       on all heads of all layers
//   0:none,1-3:cope                 by layer
//   cope@0-1,alibi@2-3              by groups of heads, in every layer
//   0:rope,1-3:cope@0-1,alibi@2-3   an assignment without layers goes on with those of the one before: alibi is in 1-3
//   0-2:rope[window=256],3:none     what queries see of the keys before them (core/attention/mask.hpp), whatever
//                                   the sum is made of
//
// Every head of every layer is named exactly once. What acts on the embeddings (absolute) acts once, before layer 0 and
// for all heads, so it must be named for all of layer 0; named for further layers too it changes nothing there.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/encoding/encoding.hpp"

namespace tally {

struct EncodingChoice {
  // An encoding has the same options wherever it acts.
  struct Part {
    const EncodingEntry* entry;
    std::unique_ptr<Options> options;

    // Whether its `score`, if it has one, adds something to the logits: another rule for the weights alone does not.
    bool joins_score() const;
  };
  // Layers or heads first .. last.
  struct Range {
    static constexpr std::int64_t end = std::numeric_limits<std::int64_t>::max();
    std::int64_t first = 0, last = end;  // last = end: all there are

    bool all() const { return last == end; }
    bool holds(std::int64_t index) const { return first <= index && index <= last; }
    std::string text() const;  // "2", "1-3"
    bool operator==(const Range&) const = default;
  };
  struct Assignment {
    Range layers = {}, heads = {};
    AttentionMask mask = {};
    std::vector<const EncodingEntry*> sum = {};  // in order of name, however it was written

    std::string sum_text() const;  // "cope+rope", "rope[window=256,first=4]"
    std::string text() const;      // "1-3:cope+rope@0-1"
  };

  std::vector<Part> parts;  // all encodings that are named, in order of name
  // By layers, then heads; empty: the sum of all parts acts everywhere, and every query sees all keys before it.
  std::vector<Assignment> assignments;

  // Throws Error for an empty text, unknown names, a name twice in a sum, and ranges or brackets that are none.
  static EncodingChoice parse(std::string_view text);
  EncodingChoice clone() const;
  std::string text() const;  // "cope+rope", "0:none,1-3:cope"
  // The assignments, or the one that stands for none.
  std::vector<Assignment> acting() const;
  // "p-max" where one part alone has it, else "cope.p-max". Throws Error naming what is ambiguous or unknown.
  void set_option(std::string_view name, std::string_view value);

  // What publications leave open in the sums and what was chosen, a line each: whether parts with the option
  // rotated-query see q as rotated by others.
  std::vector<std::string> open_choices() const;
  // All there is to say of what was chosen, a line each: open choices, options that change nothing in these sums, and
  // what encodings have to say of the model.
  std::vector<std::string> notes(const ModelOptions& model) const;

  // Smallest model that has all the layers and heads which are named.
  std::int64_t least_layers() const;
  std::int64_t least_heads() const;
  // Throws Error naming what is missing, there twice, or not there at all in a model of these sizes.
  void check_covers(std::int64_t layers, std::int64_t heads, std::int64_t key_heads) const;

  // What acts on layer setup.layer. Throws Error for options that do not fit together and for sums of what cannot act
  // together, naming the parts. A sum acts through every part in turn. Parameters are named <encoding>.<name>;
  // where several groups of this layer's heads have the same encoding, those of each group are
  // <encoding>@<heads>.<name>.
  LayerEncoding make(const EncodingSetup& setup) const;
};

}  // namespace tally
