// Shared by the readers of tokenizer files: tokens in any order, and merges by the texts of their tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/text/hash_tables.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

class VocabularyBuilder {
 public:
  // `source` names the file in messages.
  explicit VocabularyBuilder(std::string source) : source_(std::move(source)) {}

  // Sets the location for errors: "model.vocab".
  void at(std::string place) { place_ = std::move(place); }
  template <class... Parts>
  [[noreturn]] void fail_here(Message<Parts...> fault, const Parts&... words) const {
    fail("tokenizer", "{}: {}: {}", source_, place_, formatted(fault, words...));
  }

  // Adds a token that stands for no bytes. Call it before the other tokens, which may repeat it with the same id.
  void add_special(const std::string& name, std::int64_t id, const AddedFlags& flags = {});
  // The same for a token that stands for its own name (TokenizerParts::added).
  void add_added(const std::string& text, std::int64_t id, const AddedFlags& flags = {});
  // From here on tokens use the spelling of byte fallback: plain text, blanks as U+2581, and "<0x0A>" for a byte.
  void use_byte_fallback() { byte_fallback_ = true; }
  // Adds tokens by their written forms (tasks/text/byte_characters.hpp), from an object of tokens and ids; or one by
  // its bytes.
  void add_written(const JsonValue& tokens);
  void add_bytes(std::string bytes, std::int64_t id);
  // Call after the last token. Throws if the ids have holes or one stands for two tokens.
  void finish_tokens();
  // Adds a merge by the written forms of both tokens, or of both with one blank between. Call in order of rank.
  void add_merge(std::string_view left, std::string_view right);
  void add_merge(std::string_view both);

  // Adds all pairs of tokens whose joined bytes are a token; its id is their rank.
  void add_all_pairs();
  // Sets the file for errors from here on.
  void set_source(std::string source) { source_ = std::move(source); }

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
  void add_written(const std::string& written, std::int64_t id);
  void add(std::string bytes, std::int64_t id, Kind kind, const AddedFlags& flags = {});
  void add_named(const std::string& name, std::int64_t id, Kind kind, const AddedFlags& flags);

  std::optional<std::string> bytes_of(std::string_view written) const;

  bool byte_fallback_ = false;
  std::string source_, place_;
  std::vector<Token> tokens_;
  std::unordered_map<std::string, std::size_t> named_;                  // special and added tokens in tokens_, by name
  std::unordered_map<std::string_view, std::int32_t, TextHash> index_;  // of parts.tokens
};

}  // namespace tally
