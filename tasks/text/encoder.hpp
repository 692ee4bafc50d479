// Converts text to tokens, with a cache of pieces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/text/tokenizer.hpp"

namespace tally {

// For a single thread. The tokenizer must outlive it.
class Encoder {
 public:
  // `remembered`: the number of cached pieces. A full cache is cleared. 0: no cache.
  explicit Encoder(const Tokenizer& tokenizer, std::size_t remembered = std::size_t{1} << 20);

  // Appends the tokens of the text, in which names of special tokens are ordinary text. Throws Error naming the byte
  // at which a pattern fails.
  void encode(std::string_view text, std::vector<std::int32_t>& ids);
  // The same, but the names in `allowed` become their special tokens. The leftmost match among them and the added
  // tokens wins, and the longest at one place (tasks/text/tokenizer.hpp). Throws Error for a name that is not a
  // special token.
  void encode(std::string_view text, std::span<const std::string> allowed, std::vector<std::int32_t>& ids);
  std::vector<std::int32_t> encode(std::string_view text);

 private:
  // The key of a piece of up to 15 bytes is the bytes themselves, with their number in the top byte. The key of a
  // longer piece is its hash, and the position and length of its bytes.
  struct Slot {
    std::uint64_t key[2] = {0, 0};  // the second is 0 in an empty slot
    std::uint32_t count = 0;
    std::int32_t ids[3] = {};  // for more than three tokens, the first is their position in ids_
  };

  void encode(std::string_view text, const Tokenizer::Names& names, std::vector<std::int32_t>& ids);
  // Encodes text without added tokens, after the normalisers. `first`: the text begins with it.
  void encode_stretch(std::string_view text, bool first, std::vector<std::int32_t>& ids);
  // Calls take(token) for the initial tokens of a piece, before any merge.
  template <class Take>
  void begin_piece(std::string_view piece, Take&& take) const;
  void merge_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void look_up(std::string_view piece, std::vector<std::int32_t>& ids);
  void remember(Slot& slot, std::string_view piece, std::span<const std::int32_t> ids, std::uint64_t key0,
                std::uint64_t key1);
  void grow();

  const Tokenizer& tokenizer_;
  Splitter splitter_;
  std::vector<std::string> allowed_;  // the special tokens of the last call that allowed any
  Tokenizer::Names allowed_names_;
  bool bytes_only_ = false;  // the cuts of a text do not matter
  std::size_t remembered_;
  std::size_t count_ = 0;
  std::vector<Slot> slots_;
  std::vector<char> bytes_;        // of the longer pieces
  std::vector<std::int32_t> ids_;  // of pieces with more than three tokens
};

}  // namespace tally
