// Byte-level byte pair encoding (Sennrich et al. 2016; Radford et al. 2019). A text is cut into pieces
// (tasks/text/splitter.hpp); a piece begins as its bytes, and as long as two neighbours are in the table of merges, the
// pair of the smallest rank is merged, the leftmost of equal ones. No merge crosses the border of a piece.
//
// With byte fallback, as SentencePiece has it (Kudo, Richardson 2018; LLaMA), a piece begins as its characters: those
// that are no tokens as the tokens of their bytes, which no merge takes.
//
// Special tokens stand for no bytes; in a text their names are ordinary text unless they are allowed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/text/byte_hash.hpp"
#include "tasks/text/pair_table.hpp"
#include "tasks/text/splitter.hpp"

namespace tally {

inline constexpr std::string_view end_of_text_name = "<|endoftext|>";
// All names of the token that ends a document, the first that a tokenizer has: GPT-2's; Llama 3's; SentencePiece's (of
// LLaMA); DeepSeek's; Gemma's.
inline constexpr std::string_view end_of_text_names[] = {end_of_text_name, "<|end_of_text|>", "</s>",
                                                         "<｜end▁of▁sentence｜>", "<eos>"};

struct SpecialToken {
  std::string name;
  std::int32_t id;
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
  // Ids, rising, of tokens that are found in a text before it is cut into pieces; no merge makes one, and their bytes
  // may be those of another token.
  std::vector<std::int32_t> added = {};
  std::string pattern = "gpt2";  // name or text
  bool ignore_merges = false;    // a piece that is a token as a whole is that token
  bool nfc = false;              // wants text in Unicode's normal form C
  // With byte fallback: the tokens of all 256 bytes, which may be those of other tokens too. Blanks are written as
  // U+2581 in files, and that character of a text is a blank.
  std::vector<std::int32_t> byte_tokens = {};
  bool leading_blank = false;           // then: a text gets a blank in front, which decoding takes off again
  std::vector<std::string> notes = {};  // what stands in its file and is not done here

  bool has_byte_fallback() const { return !byte_tokens.empty(); }
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
  TokenizerParts parts_;
  std::unique_ptr<SplitPattern> pattern_;
  bool is_in_index(std::int32_t id) const;

  std::vector<std::int32_t> byte_ids_;  // by byte
  PairTable pairs_;
  TextIndex index_;
};

}  // namespace tally
