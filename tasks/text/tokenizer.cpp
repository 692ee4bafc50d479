#include "tasks/text/tokenizer.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/normal_form.hpp"

namespace tally {

AddedTokens::AddedTokens(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.text.empty(); });
  std::ranges::stable_sort(entries_, {}, &Entry::text);
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  for (const Entry& entry : entries_) is_first_[static_cast<unsigned char>(entry.text[0])] = true;
}

// At each position, binary search finds the tokens that match one more byte of the text, until none is left.
AddedTokens::Match AddedTokens::next(std::string_view text, std::size_t from) const {
  Match best;
  for (std::size_t begin = from; begin < text.size() && best.entry < 0; ++begin) {
    if (!is_first_[static_cast<unsigned char>(text[begin])]) continue;
    auto first = entries_.begin(), last = entries_.end();
    for (std::size_t at = begin; at < text.size() && first != last; ++at) {
      const std::size_t size = at - begin;
      const auto byte_of = [&](const Entry& entry) { return static_cast<unsigned char>(entry.text[size]); };
      const auto byte = static_cast<unsigned char>(text[at]);
      first = std::partition_point(first, last, [&](const Entry& entry) { return byte_of(entry) < byte; });
      last = std::partition_point(first, last, [&](const Entry& entry) { return byte_of(entry) == byte; });
      if (first == last || first->text.size() > size + 1) continue;
      best = {begin, at + 1, static_cast<std::int32_t>(first - entries_.begin())};
      ++first;  // the others are longer
    }
  }
  return best;
}

bool AddedTokens::widen(std::string_view text, std::size_t done, Match& match) const {
  const AddedFlags& flags = entries_[static_cast<std::size_t>(match.entry)].flags;
  if (flags.lstrip) match.begin = std::max(done, match.begin - trailing_white_space(text.substr(0, match.begin)));
  if (flags.rstrip) match.end += leading_white_space(text.substr(match.end));
  return match.begin < match.end;  // not within the white space that the previous token took
}

std::optional<std::int32_t> token_id(std::string_view text, std::int64_t vocabulary) {
  std::int32_t id = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool is_id = error == std::errc{} && stop == text.data() + text.size() && 0 <= id && id < vocabulary;
  return is_id ? std::optional(id) : std::nullopt;
}

TokenizerParts byte_tokenizer() {
  TokenizerParts parts;
  for (const std::uint8_t byte : bytes_by_id) parts.tokens.emplace_back(1, static_cast<char>(byte));
  parts.specials.push_back({std::string(end_of_text_name), byte_count});
  parts.tokens.emplace_back();
  return parts;
}

bool TokenizerParts::has_leading_blank() const {
  return has_byte_fallback() && blanks != Blanks::replaced && blanks != Blanks::metaspace_never;
}

bool TokenizerParts::is_of_model(std::int32_t id) const {
  const auto found = std::ranges::lower_bound(added, id, {}, &AddedToken::id);
  const bool is_added = found != added.end() && found->id == id;
  return !tokens[static_cast<std::size_t>(id)].empty() && (!is_added || found->is_made);
}

std::string TokenizerParts::pattern() const {
  std::string text;
  for (const std::string& step : steps) text += formatted("{}{}", text.empty() ? "" : " | ", split_pattern_name(step));
  return text;
}

std::optional<std::int32_t> TokenizerParts::special(std::string_view name) const {
  const auto found = std::ranges::find(specials, name, &SpecialToken::name);
  return found != specials.end() ? std::optional(found->id) : std::nullopt;
}

std::optional<std::int32_t> TokenizerParts::end_of_text() const {
  for (const std::string_view name : end_of_text_names) {
    if (const std::optional<std::int32_t> id = special(name)) return id;
  }
  return std::nullopt;
}

Tokenizer::Tokenizer(TokenizerParts parts, bool with_jit)
    : parts_(std::move(parts)),
      pattern_(std::make_unique<SplitPattern>(parts_.steps, with_jit)),
      byte_ids_(byte_count, -1),
      pairs_(parts_.merges.size()) {
  for (std::int32_t id = 0; std::cmp_less(id, parts_.tokens.size()); ++id) {
    const std::string_view bytes = parts_.tokens[static_cast<std::size_t>(id)];
    if (!parts_.is_of_model(id) || std::ranges::count(parts_.byte_tokens, id) > 0) continue;
    index_.emplace(bytes, id);
    if (bytes.size() == 1) byte_ids_[static_cast<unsigned char>(bytes[0])] = id;
  }
  if (parts_.has_byte_fallback()) byte_ids_ = parts_.byte_tokens;
  check_internal(std::ranges::count(byte_ids_, -1) == 0, "tokenizer", "a byte has no token");
  for (const MergedPair& merge : parts_.merges) {
    const std::string_view left = bytes_of(merge.left), right = bytes_of(merge.right), result = bytes_of(merge.result);
    const bool fits = !left.empty() && !right.empty() && result.size() == left.size() + right.size() &&
                      result.starts_with(left) && result.ends_with(right);
    check_internal(fits, "tokenizer", "the result of merge {} {}", merge.left, merge.right);
    check(pairs_.add(merge.left, merge.right, merge.rank, merge.result), "tokenizer",
          "the merge of '{}' and '{}' stands there twice", escape_for_print(left), escape_for_print(right));
  }
  names_ = names_of({});
}

bool Tokenizer::has_normalizer() const {
  const bool writes_blanks = parts_.blanks == Blanks::replaced || parts_.blanks == Blanks::prepended;
  return !parts_.normal_forms.empty() || (parts_.has_byte_fallback() && writes_blanks);
}

std::string Tokenizer::normalized(std::string_view text) const {
  std::string result(text);
  for (const NormalForm form : parts_.normal_forms) result = tally::normalized(result, form);
  if (!parts_.has_byte_fallback() || result.empty()) return result;
  if (parts_.blanks == Blanks::prepended) return " " + blanks_read(result);
  return parts_.blanks == Blanks::replaced ? blanks_read(result) : result;
}

// Special tokens come first: of two equal names, the special one is used.
Tokenizer::Names Tokenizer::names_of(std::span<const std::string> allowed) const {
  std::vector<AddedTokens::Entry> written, in_normalized;
  const auto add = [&](std::string_view text, std::int32_t id, const AddedFlags& flags) {
    if (flags.normalized) {
      in_normalized.push_back({normalized(text), id, flags});
    } else {
      written.push_back({std::string(text), id, flags});
    }
  };
  for (const SpecialToken& special : parts_.specials) {
    if (std::ranges::find(allowed, special.name) != allowed.end()) add(special.name, special.id, special.flags);
  }
  for (const AddedToken& token : parts_.added) add(token.text, token.id, token.flags);
  return {AddedTokens(std::move(written)), AddedTokens(std::move(in_normalized))};
}

std::string_view Tokenizer::bytes_of(std::int64_t id) const {
  check(0 <= id && id < vocabulary(), "tokenizer", "there is no token {}; the vocabulary has {}", id, vocabulary());
  return parts_.tokens[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::find(std::string_view bytes) const {
  const auto found = index_.find(bytes);
  return found != index_.end() ? found->second : -1;
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += bytes_of(id);
  if (parts_.has_leading_blank() && bytes.starts_with(' ')) bytes.erase(0, 1);
  return bytes;
}

namespace {

namespace fs = std::filesystem;

// Empty if the file does not name one. It is a string, or an object with the member `content`.
std::string eos_token_of(const std::string& tokenizer_path) {
  std::error_code error;
  const fs::path path = tokenizer_path;
  const fs::path config = (fs::is_directory(path, error) ? path : path.parent_path()) / "tokenizer_config.json";
  if (tokenizer_path.empty() || !fs::exists(config, error)) return "";
  const JsonValue json = read_json(config.string());
  const JsonValue* eos = json.is_object() ? json.find("eos_token") : nullptr;
  if (eos != nullptr && eos->is_object()) eos = eos->find("content");
  return eos != nullptr && eos->is_string() ? eos->string() : "";
}

std::string special_names(const TokenizerParts& parts) {
  constexpr std::size_t most = 20;
  std::string names;
  for (std::size_t n = 0; n < std::min(most, parts.specials.size()); ++n) {
    names += formatted("{}{}", n == 0 ? "" : ", ", escape_for_print(parts.specials[n].name, 60));
  }
  if (parts.specials.size() > most) names += formatted(" and {} more", parts.specials.size() - most);
  return names.empty() ? "none" : names;
}

}  // namespace

std::optional<std::int32_t> find_end_token(const TokenizerParts& parts, const std::string& tokenizer_path) {
  const std::optional<std::int32_t> known = parts.end_of_text();
  return known ? known : parts.special(eos_token_of(tokenizer_path));
}

std::int32_t end_token(const TokenizerParts& parts, const std::string& name, const std::string& tokenizer_path) {
  const std::int64_t size = std::ssize(parts.tokens);
  std::optional<std::int32_t> id = name.empty() ? find_end_token(parts, tokenizer_path) : parts.special(name);
  if (!id) id = token_id(name, size);
  if (id) return *id;
  const std::string which =
      name.empty() ? "no special token of the tokenizer has a known name of an end-of-text token"
                   : formatted("'{}' is no special token and no id in 0 to {}", escape_for_print(name, 60), size - 1);
  fail("text", "{}; --end-token names the token that ends a document; the special tokens are {}", which,
       special_names(parts));
}

}  // namespace tally
