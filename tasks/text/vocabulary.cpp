#include "tasks/text/vocabulary.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"

namespace tally {

void VocabularyBuilder::add(std::string bytes, std::int64_t id, Kind kind, const AddedFlags& flags) {
  if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
    fail_here("'{}' has the id {}; ids are 0 to the number of tokens less one", escape_for_print(bytes), id);
  }
  tokens_.push_back({std::move(bytes), static_cast<std::int32_t>(id), kind, flags});
}

void VocabularyBuilder::add_named(const std::string& name, std::int64_t id, Kind kind, const AddedFlags& flags) {
  if (name.empty()) fail_here("a special token without a name");
  if (named_.contains(name)) fail_here("'{}' is there twice", escape_for_print(name));
  add(name, id, kind, flags);
  named_[name] = tokens_.size() - 1;
}

void VocabularyBuilder::add_special(const std::string& name, std::int64_t id, const AddedFlags& flags) {
  add_named(name, id, Kind::special, flags);
  parts.specials.push_back({name, static_cast<std::int32_t>(id), flags});
}

void VocabularyBuilder::add_added(const std::string& text, std::int64_t id, const AddedFlags& flags) {
  add_named(text, id, Kind::added, flags);
}

void VocabularyBuilder::add_written(const JsonValue& tokens) {
  if (!tokens.is_object()) fail_here("is {}; an object of tokens and ids is wanted", tokens.kind());
  for (const auto& [written, id] : tokens.members()) {
    if (!id.is_integer()) fail_here("'{}' is {}; an integer is wanted", escape_for_print(written), id.kind());
    add_written(written, id.integer());
  }
}

void VocabularyBuilder::add_written(const std::string& written, std::int64_t id) {
  if (const auto named = named_.find(written); named != named_.end()) {
    Token& token = tokens_[named->second];
    if (token.id != id) fail_here("'{}' has the ids {} and {}", escape_for_print(written), token.id, id);
    if (token.kind == Kind::added) token.made = bytes_of(written);
    return;
  }
  if (const std::optional<char> byte = byte_fallback_ ? byte_of_token(written) : std::nullopt) {
    return add(std::string(1, *byte), id, Kind::byte);
  }
  std::optional<std::string> bytes = bytes_of(written);
  if (!bytes) fail_here("'{}' holds a character that stands for no byte", escape_for_print(written));
  add_bytes(std::move(*bytes), id);
}

std::optional<std::string> VocabularyBuilder::bytes_of(std::string_view written) const {
  return byte_fallback_ ? blanks_read(written) : bytes_of_characters(written);
}

void VocabularyBuilder::add_bytes(std::string bytes, std::int64_t id) {
  if (bytes.empty()) fail_here("a token without bytes, with the id {}", id);
  add(std::move(bytes), id, Kind::plain);
}

void VocabularyBuilder::finish_tokens() {
  std::ranges::stable_sort(tokens_, {}, &Token::id);
  parts.tokens.reserve(tokens_.size());
  for (const Token& token : tokens_) {
    const auto next = static_cast<std::int64_t>(parts.tokens.size());
    if (token.id < next)
      fail_here("the id {} stands for two tokens, '{}' and another", token.id, escape_for_print(token.bytes));
    if (token.id > next) fail_here("no token has the id {}, but one has {}", next, token.id);
    const bool is_of_model = token.kind == Kind::plain || token.made.has_value();
    const std::string& bytes = token.made ? *token.made : token.bytes;
    if (is_of_model && find(bytes) >= 0) fail_here("the token '{}' is there twice", escape_for_print(bytes));
    parts.tokens.push_back(token.kind == Kind::special ? std::string() : bytes);
    if (is_of_model) index_.emplace(parts.tokens.back(), token.id);
    if (token.kind == Kind::added) parts.added.push_back({token.bytes, token.id, token.flags, is_of_model});
    if (token.kind == Kind::byte) {
      const auto byte = static_cast<unsigned char>(parts.tokens.back()[0]);
      if (parts.byte_tokens.empty()) parts.byte_tokens.assign(byte_count, -1);
      if (parts.byte_tokens[byte] >= 0) fail_here("the token {} is there twice", byte_token(byte));
      parts.byte_tokens[byte] = token.id;
    }
  }
  tokens_ = {};
  std::ranges::sort(parts.specials, {}, &SpecialToken::id);
  for (int byte = 0; byte < byte_count; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    if (byte_fallback_ && (parts.byte_tokens.empty() || parts.byte_tokens[static_cast<std::size_t>(byte)] < 0)) {
      fail_here("there is no token {}; byte_fallback needs all 256", byte_token(byte));
    }
    if (!byte_fallback_ && find(bytes) < 0) {
      fail_here("no token is the byte {} alone, written '{}'", byte, byte_characters(bytes));
    }
  }
}

std::int32_t VocabularyBuilder::find(std::string_view bytes) const {
  const auto found = index_.find(bytes);
  return found != index_.end() ? found->second : -1;
}

std::int32_t VocabularyBuilder::find_written(std::string_view written) const {
  const std::optional<std::string> bytes = bytes_of(written);
  const std::int32_t id = bytes ? find(*bytes) : -1;
  if (id < 0) fail_here("'{}' is no token of the vocabulary", escape_for_print(written));
  return id;
}

void VocabularyBuilder::add_merge(std::string_view both) {
  const std::size_t blank = std::min(both.find(' '), both.size());
  const std::string_view left = both.substr(0, blank), right = both.substr(std::min(blank + 1, both.size()));
  if (left.empty() || right.empty() || right.find(' ') != right.npos) {
    fail_here("'{}'; two tokens with one blank between are wanted", escape_for_print(both));
  }
  add_merge(left, right);
}

void VocabularyBuilder::add_merge(std::string_view left, std::string_view right) {
  const std::int32_t left_id = find_written(left), right_id = find_written(right);
  const auto bytes = [&](std::int32_t id) -> const std::string& { return parts.tokens[static_cast<std::size_t>(id)]; };
  const std::int32_t result = find(bytes(left_id) + bytes(right_id));
  if (result < 0) fail_here("'{}' and '{}' together are no token", escape_for_print(left), escape_for_print(right));
  parts.merges.push_back({left_id, right_id, result, static_cast<std::int32_t>(parts.merges.size())});
}

void VocabularyBuilder::add_all_pairs() {
  const std::size_t count = parts.tokens.size();
  for (std::size_t id = 0; id < count; ++id) {
    const std::string& whole = parts.tokens[id];
    constexpr std::size_t longest = 1024;  // every cut of a token is tried
    if (whole.size() > longest) fail_here("the token {} has {} bytes; {} at most", id, whole.size(), longest);
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
      const std::int32_t left = find(std::string_view(whole).substr(0, cut));
      const std::int32_t right = left < 0 ? -1 : find(std::string_view(whole).substr(cut));
      const auto rank = static_cast<std::int32_t>(id);
      if (right >= 0) parts.merges.push_back({left, right, rank, rank});
    }
  }
}

}  // namespace tally
