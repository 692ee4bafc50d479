// Byte-level byte pair encoding (Sennrich et al. 2016; Radford et al. 2019). A text is cut into pieces
// (tasks/text/splitter.hpp). A piece begins as its bytes. While two neighbours are in the table of merges, the pair of
// the smallest rank is merged, the leftmost of equal ones. No merge crosses the border of a piece.
//
// With byte fallback (SentencePiece: Kudo, Richardson 2018; LLaMA), a piece begins as its characters. A character
// without a token becomes the tokens of its bytes, which are never merged.
//
// Special tokens stand for no bytes. Their names in a text are ordinary text unless they are allowed.
//
// Encoding follows the order of the library `tokenizers`. First the added tokens that match the raw text are extracted.
// The stretches between them are normalised and, with byte fallback, get a leading blank. Next the added tokens that
// match the normalised text are extracted. The rest is cut into pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tasks/text/hash_tables.hpp"
#include "tasks/text/normal_form.hpp"
#include "tasks/text/splitter.hpp"

namespace tally {

// Added tokens of a tokenizer, which are found in a text before it is cut into pieces (tokenizer.json: "added_tokens").
// The leftmost match wins, and the longest at one position.

// The white space that belongs to a token, and the text in which it is found.
struct AddedFlags {
  bool lstrip = false;      // with the white space before it
  bool rstrip = false;      // with the white space after it
  bool normalized = false;  // its normalised name is searched in the normalised text
  bool operator==(const AddedFlags&) const = default;
};

class AddedTokens {
 public:
  struct Entry {
    std::string text;
    std::int32_t id;
    AddedFlags flags;
  };
  // If two have the same text, the first is used. Empty texts are never found.
  explicit AddedTokens(std::vector<Entry> entries = {});

  bool empty() const { return entries_.empty(); }

  // Calls found(id) for the tokens in the text, and between(stretch, offset) for the stretches before, between and
  // after them that are not empty.
  template <class Between, class Found>
  void cut(std::string_view text, Between&& between, Found&& found) const {
    std::size_t done = 0;
    for (std::size_t at = empty() ? text.size() : 0; at < text.size();) {
      Match match = next(text, at);
      if (match.entry < 0) break;
      at = match.end;
      if (!widen(text, done, match)) continue;
      if (done < match.begin) between(text.substr(done, match.begin - done), done);
      found(entries_[static_cast<std::size_t>(match.entry)].id);
      done = match.end;
    }
    if (done < text.size()) between(text.substr(done), done);
  }

 private:
  struct Match {
    std::size_t begin = 0, end = 0;
    std::int32_t entry = -1;
  };
  Match next(std::string_view text, std::size_t from) const;
  // Applies the flags. Returns false if the previous token, which ends at `done`, took all of it.
  bool widen(std::string_view text, std::size_t done, Match& match) const;

  std::vector<Entry> entries_;        // sorted by their texts
  std::array<bool, 256> is_first_{};  // whether a text begins with the byte
};

inline constexpr std::string_view end_of_text_name = "<|endoftext|>";
// Known names of the token that ends a document, in order of preference: GPT-2's; Llama 3's; SentencePiece's (of
// LLaMA); DeepSeek's; Gemma's.
inline constexpr std::string_view end_of_text_names[] = {end_of_text_name, "<|end_of_text|>", "</s>",
                                                         "<｜end▁of▁sentence｜>", "<eos>"};

// The number that the text is, if it is an id in 0 to vocabulary - 1.
std::optional<std::int32_t> token_id(std::string_view text, std::int64_t vocabulary = std::int64_t{1} << 31);

struct SpecialToken {
  std::string name;
  std::int32_t id;
  AddedFlags flags = {};
  bool operator==(const SpecialToken&) const = default;
};

struct AddedToken {
  std::string text;  // that is searched for
  std::int32_t id;
  AddedFlags flags = {};
  bool is_made = false;  // also a token of the model, which merges may produce
  bool operator==(const AddedToken&) const = default;
};

// How a tokenizer with byte fallback writes blanks (U+2581 in its tokens), and whether it adds a blank at the beginning
// of a text.
enum class Blanks {
  replaced,          // by a normaliser
  prepended,         // the same, and each stretch between added tokens gets one more in front (LLaMA)
  metaspace_never,   // by the pre-tokenizer Metaspace
  metaspace_first,   // a text gets one unless it begins with a blank or an added token (LLaMA, newer files)
  metaspace_always,  // each stretch between added tokens gets one unless it begins with a blank
};

struct MergedPair {
  std::int32_t left, right;  // ids
  std::int32_t result;       // the token of their joined bytes
  std::int32_t rank;         // smaller ones first
  bool operator==(const MergedPair&) const = default;
};

// The data of a tokenizer, from training or from a file.
struct TokenizerParts {
  std::vector<std::string> tokens;     // bytes by id; empty for a special token
  std::vector<MergedPair> merges;      // by rank
  std::vector<SpecialToken> specials;  // by id
  // By id: tokens that are found in a text before it is cut into pieces. If merges cannot produce such a token, another
  // token may have the same bytes.
  std::vector<AddedToken> added = {};
  std::vector<NormalForm> normal_forms = {};  // applied to a text one after the other
  std::vector<std::string> steps = {"gpt2"};  // that cut a text into pieces
  bool ignore_merges = false;                 // a piece that equals a token becomes that token
  // With byte fallback: the tokens of all 256 bytes, which other tokens may share. Files write blanks as
  // U+2581, and that character in a text becomes a blank.
  std::vector<std::int32_t> byte_tokens = {};
  Blanks blanks = Blanks::replaced;     // with byte fallback
  std::vector<std::string> notes = {};  // content of the file that tally ignores
  std::string json = {};                // the tokenizer.json that it was read from

  bool has_byte_fallback() const { return !byte_tokens.empty(); }
  // Whether encoding adds a leading blank, which decoding removes.
  bool has_leading_blank() const;
  // Whether the model has the token, so that merges may produce it.
  bool is_of_model(std::int32_t id) const;
  // The steps as text for messages: "gpt2", or several joined by " | ".
  std::string pattern() const;
  // The id of the special token of that name, or nothing.
  std::optional<std::int32_t> special(std::string_view name) const;
  // The id of the token between documents, by one of its names; nothing if there is none.
  std::optional<std::int32_t> end_of_text() const;
};

// The 256 bytes followed by end_of_text_name: ids 0 to 256.
TokenizerParts byte_tokenizer();

class Tokenizer {
 public:
  // The readers of files and the training give parts in which each byte has a token, no two tokens of the model are
  // equal and merges join their parts. Throws Error for a merge that exists twice and a pattern that is refused.
  explicit Tokenizer(TokenizerParts parts, bool with_jit = true);

  const TokenizerParts& parts() const { return parts_; }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(parts_.tokens.size()); }
  // The bytes of a token; empty for a special one. Throws Error for an id outside the vocabulary.
  std::string_view bytes_of(std::int64_t id) const;
  // The id of the special token of that name, or nothing.
  std::optional<std::int32_t> special(std::string_view name) const { return parts_.special(name); }
  // The token with these bytes, or -1.
  std::int32_t find(std::string_view bytes) const;

  // The concatenated bytes of the tokens, without a leading blank that encoding adds. Throws like bytes_of.
  std::string decode(const std::vector<std::int32_t>& ids) const;

 private:
  friend class Encoder;
  // The tokens that are found in the raw text, and those found in the normalised one.
  struct Names {
    AddedTokens written, normalized;
  };
  // Selects the added tokens and the allowed special tokens.
  Names names_of(std::span<const std::string> allowed) const;
  // The text after the normalisers.
  std::string normalized(std::string_view text) const;
  bool has_normalizer() const;

  TokenizerParts parts_;
  std::unique_ptr<SplitPattern> pattern_;
  Names names_;  // without special tokens

  std::vector<std::int32_t> byte_ids_;  // by byte
  PairTable pairs_;
  std::unordered_map<std::string_view, std::int32_t, TextHash> index_;  // of parts_.tokens
};

// The token that ends a document.

// By a known name (TokenizerParts::end_of_text()), or else the eos_token of the tokenizer_config.json next to the
// tokenizer's file, or in its folder, if that is a special token. A chat model's eos_token ends a turn and not a
// document, so known names come first. Nothing if neither exists.
std::optional<std::int32_t> find_end_token(const TokenizerParts& parts, const std::string& tokenizer_path);

// The special token of this name, or the token with this id; empty: find_end_token(). Throws Error naming the
// tokenizer's special tokens.
std::int32_t end_token(const TokenizerParts& parts, const std::string& name, const std::string& tokenizer_path);

}  // namespace tally
