#include "tasks/text/tokenizer.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"

namespace tally {

TokenizerParts byte_tokenizer() {
  TokenizerParts parts;
  for (const std::uint8_t byte : bytes_by_id) parts.tokens.emplace_back(1, static_cast<char>(byte));
  parts.specials.push_back({std::string(end_of_text_name), byte_count});
  parts.tokens.emplace_back();
  return parts;
}

std::optional<std::int32_t> TokenizerParts::end_of_text() const {
  for (const std::string_view name : end_of_text_names) {
    const auto found = std::ranges::find(specials, name, &SpecialToken::name);
    if (found != specials.end()) return found->id;
  }
  return std::nullopt;
}

Tokenizer::Tokenizer(TokenizerParts parts, bool with_jit)
    : parts_(std::move(parts)),
      pattern_(std::make_unique<SplitPattern>(parts_.pattern, with_jit)),
      byte_ids_(byte_count, -1),
      pairs_(parts_.merges.size()) {
  const auto text_of = [&](std::int32_t id) -> std::string_view { return parts_.tokens[static_cast<std::size_t>(id)]; };
  for (std::int32_t id = 0; std::cmp_less(id, parts_.tokens.size()); ++id) {
    const std::string_view bytes = text_of(id);
    if (bytes.empty() || !is_in_index(id)) continue;
    const std::int32_t twin = index_.find(bytes, text_of);
    check(twin < 0, "tokenizer", "tokens ", twin, " and ", id, " are both '", escape_for_print(bytes), "'");
    index_.add(id, text_of);
    if (bytes.size() == 1) byte_ids_[static_cast<unsigned char>(bytes[0])] = id;
  }
  if (parts_.has_byte_fallback()) byte_ids_ = parts_.byte_tokens;
  for (std::int32_t byte = 0; byte < byte_count; ++byte) {
    check(byte_ids_[static_cast<std::size_t>(byte)] >= 0, "tokenizer", "no token is the single byte ", byte,
          "; all 256 are needed");
  }
  for (const MergedPair& merge : parts_.merges) {
    const std::string_view left = bytes_of(merge.left), right = bytes_of(merge.right), result = bytes_of(merge.result);
    const bool fits = !left.empty() && !right.empty() && result.size() == left.size() + right.size() &&
                      result.starts_with(left) && result.ends_with(right);
    check_internal(fits, "tokenizer", "the result of merge ", merge.left, " ", merge.right);
    check(pairs_.add(merge.left, merge.right, merge.rank, merge.result), "tokenizer", "the merge of '",
          escape_for_print(left), "' and '", escape_for_print(right), "' stands there twice");
  }
}

// Whether pieces are looked for among such tokens.
bool Tokenizer::is_in_index(std::int32_t id) const {
  return !std::ranges::binary_search(parts_.added, id) && std::ranges::count(parts_.byte_tokens, id) == 0;
}

std::string_view Tokenizer::bytes_of(std::int64_t id) const {
  check(0 <= id && id < vocabulary(), "tokenizer", "there is no token ", id, "; the vocabulary has ", vocabulary());
  return parts_.tokens[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::special(std::string_view name) const {
  for (const SpecialToken& token : parts_.specials) {
    if (token.name == name) return token.id;
  }
  return std::nullopt;
}

std::int32_t Tokenizer::find(std::string_view bytes) const {
  return index_.find(bytes,
                     [&](std::int32_t id) -> std::string_view { return parts_.tokens[static_cast<std::size_t>(id)]; });
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += bytes_of(id);
  if (parts_.leading_blank && bytes.starts_with(' ')) bytes.erase(0, 1);
  return bytes;
}

}  // namespace tally
