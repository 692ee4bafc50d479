// Shared by the embedded JSON files: strict keys, settings as text, errors that name the entry.
#include "tasks/runs/data_file.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "nn/options.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/option_hint.hpp"

namespace tally {

Settings parse_settings(std::string_view where, std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  Settings settings;
  for (std::size_t begin = text.find_first_not_of(blanks); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(blanks, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t equals = word.find('=');
    check(equals != std::string_view::npos && equals > 0, where, "'{}' is not option=value", word);
    settings.emplace_back(option_spelling(word.substr(0, equals)), word.substr(equals + 1));
    begin = text.find_first_not_of(blanks, end);
  }
  return settings;
}

void check_set_once(std::string_view where, const Settings& settings) {
  for (auto at = settings.begin(); at != settings.end(); ++at) {
    const auto same = [&](const auto& earlier) { return earlier.first == at->first; };
    check(std::none_of(settings.begin(), at, same), where, "{} is set twice", at->first);
  }
}

void check_keys(std::string_view where, const JsonValue& value, std::initializer_list<std::string_view> keys) {
  const auto known = [&] { return std::vector<std::string>(keys.begin(), keys.end()); };
  if (!value.is_object()) fail(where, "expected an object with {}, found {}", joined(known()), value.kind());
  for (const JsonMember& member : value.members()) {
    if (std::ranges::count(keys, member.name) > 0) continue;
    fail(where, "unknown key '{}'{}", member.name, did_you_mean_or_known(member.name, known()));
  }
}

std::string optional_text(const JsonValue& object, std::string_view key) {
  return object.contains(key) ? object.string(key) : "";
}

std::vector<std::string> texts_in(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = object.find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {object.string(key)};
  std::vector<std::string> texts;
  for (const JsonValue& element : value->elements()) {
    check(element.is_string(), "json", "'{}' must hold strings, but has {}", key, element.kind());
    texts.push_back(element.string());
  }
  return texts;
}

void for_each_entry(const JsonValue& entries, const std::string& file,
                    const std::function<void(const std::string& name, const JsonValue& entry)>& take) {
  in_file(file, [&] { entries.members(); });  // checks that it is an object
  for (const JsonMember& member : entries.members()) {
    in_file(formatted("{}: {}", file, member.name), [&] { take(member.name, member.value); });
  }
}

}  // namespace tally
