// What the readers of tokenizer files share: tokens that come in any order, and merges by the texts of their tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tasks/text/hash_tables.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

class VocabularyBuilder {
 public:
  // `source` names the file in messages.
  explicit VocabularyBuilder(std::string source) : source_(std::move(source)) {}

  // Where messages say that what is wrong stands: "model.vocab".
  template <class... Parts>
  void at(const Parts&... words) {
    place_ = concat(words...);
  }
  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... words) const {
    fail("tokenizer", source_, ": ", place_, ": ", words...);
  }

  // Stands for no bytes. Before the other tokens, among which it may come again with the same id.
  void add_special(const std::string& name, std::int64_t id, const AddedFlags& flags = {});
  // The same for one that stands for its own name (TokenizerParts::added).
  void add_added(const std::string& text, std::int64_t id, const AddedFlags& flags = {});
  // From here on tokens are written as they are, blanks as U+2581, and "<0x0A>" is a byte: those of a tokenizer with
  // byte fallback.
  void use_byte_fallback() { byte_fallback_ = true; }
  // A token by what it is written as (tasks/text/byte_characters.hpp), or by its bytes.
  void add_written(const std::string& written, std::int64_t id);
  void add_bytes(std::string bytes, std::int64_t id);
  // The tokens are all there; throws where their ids have holes or one stands for two.
  void finish_tokens();
  // By what both are written as, in order of rank.
  void add_merge(std::string_view left, std::string_view right);

  // All pairs of tokens whose bytes together are a token, whose id is their rank.
  void add_all_pairs();
  // What is wrong from here on is in another file.
  void set_source(std::string source) { source_ = std::move(source); }

  std::int64_t token_count() const { return static_cast<std::int64_t>(tokens_.size()); }
  TokenizerParts parts;

 private:
  enum class Kind { plain, special, added, byte };
  struct Token {
    std::string bytes;
    std::int32_t id;
    Kind kind;
    AddedFlags flags = {};
    std::optional<std::string> made = {};  // of an added token: its bytes as a token of the model
  };
  std::int32_t find(std::string_view bytes) const;
  std::int32_t find_written(std::string_view written) const;
  void add(std::string bytes, std::int64_t id, Kind kind, const AddedFlags& flags = {});
  void add_named(const std::string& name, std::int64_t id, Kind kind, const AddedFlags& flags);

  std::optional<std::string> bytes_of(std::string_view written) const;

  bool byte_fallback_ = false;
  std::string source_, place_;
  std::vector<Token> tokens_;
  std::unordered_map<std::string, std::size_t> named_;  // special and added tokens in tokens_, by name
  TextIndex index_;                                     // of parts.tokens
};

}  // namespace tally
