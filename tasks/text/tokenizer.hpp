// Byte-level byte pair encoding (Sennrich et al. 2016; Radford et al. 2019). A text is cut into pieces
// (tasks/text/splitter.hpp); a piece begins as its bytes, and as long as two neighbours are in the table of merges, the
// pair of the smallest rank is merged, the leftmost of equal ones. No merge crosses the border of a piece.
//
// With byte fallback, as SentencePiece has it (Kudo, Richardson 2018; LLaMA), a piece begins as its characters: those
// that are no tokens as the tokens of their bytes, which no merge takes.
//
// Special tokens stand for no bytes; in a text their names are ordinary text unless they are allowed.
//
// A text becomes tokens in the order of the library `tokenizers`: the added tokens that are searched as written are
// taken out; the stretches between them are normalised and, with byte fallback, get a leading blank; the
// added tokens that are searched in the normalised text are taken out; the rest is cut into pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/text/added_tokens.hpp"
#include "tasks/text/hash_tables.hpp"
#include "tasks/text/normal_form.hpp"
#include "tasks/text/splitter.hpp"

namespace tally {

inline constexpr std::string_view end_of_text_name = "<|endoftext|>";
// Known names of the token that ends a document; the first one in a tokenizer counts: GPT-2's; Llama 3's;
// SentencePiece's (of LLaMA); DeepSeek's; Gemma's.
inline constexpr std::string_view end_of_text_names[] = {end_of_text_name, "<|end_of_text|>", "</s>",
                                                         "<｜end▁of▁sentence｜>", "<eos>"};

struct SpecialToken {
  std::string name;
  std::int32_t id;
  AddedFlags flags = {};
};

struct AddedToken {
  std::string text;  // that is searched for
  std::int32_t id;
  AddedFlags flags = {};
  bool is_made = false;  // also a token of the model, which merges may make
};

// How a tokenizer with byte fallback writes blanks, which its tokens write as U+2581, and whether it puts a blank in
// front of a text.
enum class Blanks {
  replaced,          // by a normaliser
  prepended,         // the same, and each stretch between added tokens gets one more in front (LLaMA)
  metaspace_never,   // by the pre-tokenizer Metaspace
  metaspace_first,   // a text that begins with neither a blank nor an added token gets one (LLaMA, newer files)
  metaspace_always,  // each stretch between added tokens that begins with no blank gets one
};

struct MergedPair {
  std::int32_t left, right;  // ids
  std::int32_t result;       // the token of their bytes together
  std::int32_t rank;         // smaller ones first
};

// What a tokenizer is, from training or from a file.
struct TokenizerParts {
  std::vector<std::string> tokens;     // bytes by id; of a special token nothing
  std::vector<MergedPair> merges;      // by rank
  std::vector<SpecialToken> specials;  // by id
  // By id: tokens that are found in a text before it is cut into pieces. Unless merges make them too, another
  // token may have the same bytes.
  std::vector<AddedToken> added = {};
  std::vector<NormalForm> normal_forms = {};  // applied to a text one after the other
  std::vector<SplitStep> steps = {{"gpt2"}};  // that cut a text into pieces
  bool ignore_merges = false;                 // a piece that is a token as a whole is that token
  // With byte fallback: the tokens of all 256 bytes, which may be those of other tokens too. Blanks are written as
  // U+2581 in files, and that character of a text is a blank.
  std::vector<std::int32_t> byte_tokens = {};
  Blanks blanks = Blanks::replaced;     // then
  std::vector<std::string> notes = {};  // what stands in its file and is not done here

  bool has_byte_fallback() const { return !byte_tokens.empty(); }
  // Whether encoding puts a blank in front, which decoding takes off again.
  bool has_leading_blank() const;
  // Whether the model has the token: its merges may make it.
  bool is_of_model(std::int32_t id) const;
  // The steps as text for messages: "gpt2", or several joined by " | ".
  std::string pattern() const;
  // The id of the token between documents, by one of its names; nothing when there is none.
  std::optional<std::int32_t> end_of_text() const;
};

// The 256 bytes and end_of_text_name behind them: ids 0 to 256.
TokenizerParts byte_tokenizer();

class Tokenizer {
 public:
  // Throws Error when a byte has no token, a merge's result is not its parts together, or the pattern is refused.
  explicit Tokenizer(TokenizerParts parts, bool with_jit = true);

  const TokenizerParts& parts() const { return parts_; }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(parts_.tokens.size()); }
  // Bytes of a token, none of a special one. Throws Error for an id outside the vocabulary.
  std::string_view bytes_of(std::int64_t id) const;
  // Its id; nothing when there is no special token of that name.
  std::optional<std::int32_t> special(std::string_view name) const;
  // The token with these bytes; -1 when there is none.
  std::int32_t find(std::string_view bytes) const;

  // The bytes of the tokens one after the other, without a leading blank that encoding puts there. Throws as bytes_of.
  std::string decode(const std::vector<std::int32_t>& ids) const;

 private:
  friend class Encoder;
  // The tokens that are found in a text as it is, and those found in the normalised one.
  struct Names {
    AddedTokens written, normalized;
  };
  // Finds the added tokens and the special tokens that are allowed.
  Names names_of(std::span<const std::string> allowed) const;
  // The text after the normalisers.
  std::string normalized(std::string_view text) const;
  bool has_normalizer() const;
  bool is_in_index(std::int32_t id) const;

  TokenizerParts parts_;
  std::unique_ptr<SplitPattern> pattern_;
  Names names_;  // without special tokens

  std::vector<std::int32_t> byte_ids_;  // by byte
  PairTable pairs_;
  TextIndex index_;
};

}  // namespace tally
