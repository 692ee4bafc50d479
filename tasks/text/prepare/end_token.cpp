#include "tasks/text/prepare/end_token.hpp"

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

std::optional<std::int32_t> special_of(const TokenizerParts& parts, const std::string& name) {
  const auto found = std::ranges::find(parts.specials, name, &SpecialToken::name);
  return found != parts.specials.end() ? std::optional(found->id) : std::nullopt;
}

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
  return known ? known : special_of(parts, eos_token_of(tokenizer_path));
}

std::int32_t end_token(const TokenizerParts& parts, const std::string& name, const std::string& tokenizer_path) {
  const std::int64_t size = std::ssize(parts.tokens);
  std::optional<std::int32_t> id = name.empty() ? find_end_token(parts, tokenizer_path) : special_of(parts, name);
  if (!id) id = token_id(name, size);
  if (id) return *id;
  const std::string which =
      name.empty() ? "no special token of the tokenizer has a known name of an end-of-text token"
                   : formatted("'{}' is no special token and no id in 0 to {}", escape_for_print(name, 60), size - 1);
  fail("text", "{}; --end-token names the token that ends a document; the special tokens are {}", which,
       special_names(parts));
}

}  // namespace tally
