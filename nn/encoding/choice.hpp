// The encodings of all layers and heads, as in --pe:
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
//   0:rope,1-3:cope@0-1,alibi@2-3   an assignment without layers has those of the one before: alibi is in 1-3
//   0-2:rope[window=256],3:none     with an attention mask (core/attention/mask.hpp)
//
// Every head of every layer is named exactly once. Encodings of the embeddings (absolute) act once, before layer 0 and
// for all heads, so they must be named for all of layer 0. They have no effect in further layers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/encoding/encoding.hpp"

namespace tally {

struct EncodingChoice {
  // An encoding has the same options wherever it acts.
  struct Part {
    const EncodingEntry* entry;
    std::unique_ptr<Options> options;
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
    // "1-3:cope+rope@0-1", without the layers if they equal `before`.
    std::string text(const Range& before) const;
  };

  std::vector<Part> parts;  // all encodings that are named, in order of name
  // By layers, then heads. Empty: the sum of all parts acts everywhere, with the causal mask.
  std::vector<Assignment> assignments;

  // Throws Error for an empty text, unknown names, a name twice in a sum, and invalid ranges or brackets.
  static EncodingChoice parse(std::string_view text);
  EncodingChoice clone() const;
  std::string text() const;  // "cope+rope", "0:none,1-3:cope"
  // The assignments, or a single one for all layers and heads.
  std::vector<Assignment> acting() const;
  // "p-max" if only one part has it, else "cope.p-max". Throws Error if the name is ambiguous or unknown.
  void set_option(std::string_view name, std::string_view value);

  // Warnings about flags without effect, a line each.
  std::vector<std::string> notes() const;

  // The sizes of the smallest model that has all named layers and heads.
  std::int64_t least_layers() const;
  std::int64_t least_heads() const;
  // Throws Error if a head is not named exactly once, or does not exist in a model of these sizes.
  void check_covers(std::int64_t layers, std::int64_t heads, std::int64_t key_heads) const;

  // The encodings of layer setup.layer. Throws Error for options that contradict each other and for encodings that
  // cannot be combined. Parameters are named <encoding>.<name>, or <encoding>@<heads>.<name> if several groups of this
  // layer's heads have the same encoding.
  LayerEncoding make(const EncodingSetup& setup) const;
};

// The choice that `text` describes, with options: encoding("cope+rope", {{"p-max", 16}, {"base", 100}}).
EncodingChoice encoding(std::string_view text,
                        std::initializer_list<std::pair<std::string_view, OptionValue>> options = {});

}  // namespace tally
