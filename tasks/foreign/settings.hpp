// The two forms of a model's settings: config.json of another library, and our configuration. On both sides every
// setting must be read by code that handles its effect on the computed function, or be known to have no effect
// (idle_keys.txt). Any other setting is refused by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// Keys unknown to tally that the user declares to have no effect: "flash_decoding", "rope_scaling.note".
using IgnoredKeys = std::vector<std::string>;

// Keys of config.json that do not change the computed function (idle_keys.txt), in files of any library: metadata,
// storage types, and settings of training, generation and other tasks. Some are idle only with certain values.
enum class KeyEffect {
  none,     // no effect with this value, or with any
  changes,  // a known key, which with this value changes the function
  unknown
};
// The effect of the member `key` of an object of config.json that no family has read. The value is not null.
KeyEffect effect_of(std::string_view key, const JsonValue& object);

// An object of config.json. A key that is null counts as missing. Errors name file and key.
class ForeignSettings {
 public:
  // `object` must live as long as this. source: "folder/config.json".
  ForeignSettings(const JsonValue& object, std::string source, IgnoredKeys ignored = {});

  const std::string& source() const { return source_; }
  // Notes for the user: assumptions, and settings that other readers interpret differently.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  const std::vector<std::string>& notes() const { return notes_; }
  bool has(std::string_view key) const;
  // An integer from 1 to 2^31 - 1. Without `usual` the key is required. The same holds for the other functions.
  std::int64_t count(std::string_view key, std::optional<std::int64_t> usual = {});
  double real(std::string_view key, std::optional<double> usual = {});
  // A number above 0. In our own options 0 means the default.
  double positive(std::string_view key, std::optional<double> usual = {});
  // For an alias of a key that was already read: throws Error if it is present with another number.
  void agree(std::string_view key, std::int64_t value);
  // An integer or an array of integers: those from 0 to `end` - 1, in order. Empty if the key is missing.
  std::vector<std::int64_t> ids(std::string_view key, std::int64_t end);
  bool flag(std::string_view key, bool usual);
  std::string text(std::string_view key, std::optional<std::string_view> usual = {});
  // The object under the key, or an empty one.
  ForeignSettings child(std::string_view key);
  // Throws Error unless the flag is as wanted.
  void demand(std::string_view key, bool wanted, bool usual);
  // Marks keys of this object as read.
  void pass_over(std::initializer_list<std::string_view> keys);
  // Throws Error naming unread keys that may change the computed function, and keys to be ignored that are missing or
  // were read.
  void refuse_unread() const;

  template <class... Parts>
  [[noreturn]] void refuse(std::string_view key, Message<Parts...> why, const Parts&... parts) const {
    fail("import", "{}: '{}' {}", source_, key, formatted(why, parts...));
  }

 private:
  // The value, or null if it is missing. It must be of this kind.
  const JsonValue* take(std::string_view key, bool needed);
  const JsonValue* take(std::string_view key, bool needed, bool (JsonValue::*is)() const, std::string_view wanted);

  const JsonValue& object_;
  std::string source_;
  IgnoredKeys ignored_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> notes_;
};

// The model and encodings of a configuration, for a format that may not be able to express them. Names are as in
// RunConfig::fields: "model.norm", "pe.rope.base".
class OwnSettings {
 public:
  // format: "gpt2", for messages.
  OwnSettings(const RunConfig& config, std::string_view format);

  std::string text(std::string_view name);
  std::int64_t integer(std::string_view name);
  double real(std::string_view name);
  bool flag(std::string_view name) { return text(name) == "true"; }
  // Returns the value. Throws Error unless it is one of these.
  std::string one_of(std::string_view name, std::initializer_list<std::string_view> values);
  // Throws Error unless the configuration has exactly this encoding.
  void demand_encoding(std::string_view encoding) const;
  // Throws Error naming the first option that was not read and does not have its default.
  void refuse_unread() const;

 private:
  const RunConfig& config_;
  std::string format_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tally
