// A member of tokenizer.json that is read strictly: anything unknown is refused with its location.
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

namespace tally {

// An object of the file with its location, "pre_tokenizer.pretokenizers[0]", for messages.
class TokenizerNode {
 public:
  using Names = std::initializer_list<std::string_view>;

  TokenizerNode(const JsonValue& value, std::string source, std::string path)
      : value_(value), source_(std::move(source)), path_(std::move(path)) {}

  template <class... Parts>
  [[noreturn]] void refuse(std::string_view member, Message<Parts...> fault, const Parts&... parts) const {
    const std::string dot = path_.empty() || member.empty() ? "" : ".";
    fail("tokenizer", "{}: {}: {}", source_,
         path_.empty() && member.empty() ? "the file" : path_ + dot + escape_for_print(member),
         formatted(fault, parts...));
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
  const JsonValue& member(std::string_view name) const {
    const JsonValue* found = value_.find(name);
    if (found == nullptr) refuse(name, "is missing");
    return *found;
  }
  TokenizerNode child(std::string_view name) const {
    return {member(name), source_, path_.empty() ? std::string(name) : formatted("{}.{}", path_, name)};
  }
  std::vector<TokenizerNode> elements(std::string_view name) const {
    const JsonValue& array = member(name);
    if (!array.is_array()) refuse(name, "is {}; an array is wanted", array.kind());
    std::vector<TokenizerNode> nodes;
    for (const JsonValue& element : array.elements()) {
      nodes.emplace_back(element, source_, formatted("{}{}[{}]", path_.empty() ? "" : path_ + ".", name, nodes.size()));
    }
    return nodes;
  }
  const std::string& text(std::string_view name) const {
    const JsonValue& value = member(name);
    if (!value.is_string()) refuse(name, "is {}; a string is wanted", value.kind());
    return value.string();
  }
  std::int64_t integer(std::string_view name) const {
    const JsonValue& value = member(name);
    if (!value.is_integer()) refuse(name, "is {}; an integer is wanted", value.kind());
    return value.integer();
  }
  bool flag(std::string_view name, bool otherwise) const {
    if (absent(name)) return otherwise;
    const JsonValue& value = member(name);
    if (!value.is_bool()) refuse(name, "is {}; true or false is wanted", value.kind());
    return value.boolean();
  }
  // Throws unless the flag has the only supported value.
  void check_flag(std::string_view name, bool wanted) const {
    if (flag(name, wanted) != wanted) refuse(name, "is not read here when it is {}", !wanted);
  }
  void check_absent(Names names) const {
    for (const std::string_view name : names) {
      if (!absent(name)) refuse(name, "is not read here unless it is null");
    }
  }
  const JsonValue& value() const { return value_; }

 private:
  const JsonValue& value_;
  std::string source_, path_;
};

}  // namespace tally
