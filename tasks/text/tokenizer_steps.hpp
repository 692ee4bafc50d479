// The steps around the model of tokenizer.json: "normalizer", "pre_tokenizer" and "decoder". The file is read strictly:
// anything unknown is refused with its location.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/utf8.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

// An object of the file with its location, "pre_tokenizer.pretokenizers[0]", for messages.
class TokenizerNode {
 public:
  using Names = std::initializer_list<std::string_view>;

  TokenizerNode(const JsonValue& value, std::string source, std::string path)
      : value_(value), source_(std::move(source)), path_(std::move(path)) {}

  template <class... Parts>
  [[noreturn]] void refuse(std::string_view member, Message<Parts...> fault, const Parts&... parts) const {
    const std::string path = member.empty() ? path_ : path_of(escape_for_print(member));
    fail("tokenizer", "{}: {}: {}", source_, path.empty() ? "the file" : path, formatted(fault, parts...));
  }
  void check_object() const {
    if (!value_.is_object()) refuse("", "is {}; an object is wanted", value_.kind());
  }
  // Throws unless the object has only these members.
  void check_names(Names names) const {
    check_object();
    for (const JsonMember& member : value_.members()) {
      if (std::find(names.begin(), names.end(), member.name) == names.end()) refuse(member.name, "is not known here");
    }
  }
  // Whether the member is null or missing.
  bool absent(std::string_view name) const {
    const JsonValue* member = value_.find(name);
    return member == nullptr || member->is_null();
  }
  void check_absent(std::string_view name) const {
    if (!absent(name)) refuse(name, "is not read here unless it is null");
  }
  TokenizerNode child(std::string_view name) const { return {member(name), source_, path_of(name)}; }
  std::vector<TokenizerNode> elements(std::string_view name) const {
    std::vector<TokenizerNode> nodes;
    for (const JsonValue& element : member(name, &JsonValue::is_array, "an array").elements()) {
      nodes.emplace_back(element, source_, formatted("{}[{}]", path_of(name), nodes.size()));
    }
    return nodes;
  }
  const std::string& text(std::string_view name) const {
    return member(name, &JsonValue::is_string, "a string").string();
  }
  std::int64_t integer(std::string_view name) const {
    return member(name, &JsonValue::is_integer, "an integer").integer();
  }
  bool flag(std::string_view name, bool otherwise) const {
    return absent(name) ? otherwise : member(name, &JsonValue::is_bool, "true or false").boolean();
  }
  // Throws unless the flag has the only supported value.
  void check_flag(std::string_view name, bool wanted) const {
    if (flag(name, wanted) != wanted) refuse(name, "is not read here when it is {}", !wanted);
  }
  const JsonValue& value() const { return value_; }

 private:
  std::string path_of(std::string_view member) const {
    return path_.empty() ? std::string(member) : formatted("{}.{}", path_, member);
  }
  const JsonValue& member(std::string_view name) const {
    const JsonValue* found = value_.find(name);
    if (found == nullptr) refuse(name, "is missing");
    return *found;
  }
  const JsonValue& member(std::string_view name, bool (JsonValue::*is)() const, std::string_view wanted) const {
    const JsonValue& found = member(name);
    if (!(found.*is)()) refuse(name, "is {}; {} is wanted", found.kind(), wanted);
    return found;
  }

  const JsonValue& value_;
  std::string source_, path_;
};

// Reads the three members into the parts, for a model with byte fallback or a byte-level one. Throws Error naming the
// unsupported member and the supported ones.
void read_tokenizer_steps(const TokenizerNode& file, bool byte_fallback, TokenizerParts& parts);
// With byte fallback, if the file does not cut texts: cuts them where no merge can cross. Needs the tokens.
void set_fallback_pattern(TokenizerParts& parts);

JsonValue normalizer_json(const TokenizerParts& parts);
JsonValue pre_tokenizer_json(const TokenizerParts& parts);
JsonValue decoder_json(const TokenizerParts& parts);

}  // namespace tally
