// tally new-encoding: a file to begin with, which builds, passes the tests and does nothing yet.
#include <algorithm>
#include <cctype>
#include <memory>

#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

// "my-idea" -> "MyIdea"
std::string title_of(const std::string& name) {
  std::string title;
  for (std::size_t n = 0; n < name.size(); ++n) {
    if (name[n] == '-') continue;
    const bool first = n == 0 || name[n - 1] == '-';
    title += first ? static_cast<char>(std::toupper(static_cast<unsigned char>(name[n]))) : name[n];
  }
  return title;
}

void check_name(const std::string& name) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool known = std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '-'; });
  const bool good = known && !name.empty() && letter(name.front()) && name.back() != '-' &&
                    name.find("--") == std::string::npos && name.size() <= 40;
  check(good, "new-encoding", "'{}' is no name for an encoding: small letters, digits and single '-' between them",
        name);
  const auto same = [&](const EncodingEntry* entry) { return entry->name == name; };
  check(std::ranges::none_of(encoding_registry(), same), "new-encoding",
        "there is an encoding {} already: nn/position/{}.cpp", name, replaced(name, "-", "_"));
}

}  // namespace

std::function<Result()> declare_new_encoding(CommandLine& line) {
  const auto name = std::make_shared<std::string>();
  const auto score_mod = std::make_shared<bool>(false);
  line.add("NAME", name.get(), "name of the encoding: lower-case letters, digits and '-'", {.required = true});
  line.add("--score-mod", score_mod.get(), "with a score modification: a formula of a pair and of a running sum");
  line.footer = "The file is printed: tally new-encoding my-idea > nn/position/my_idea.cpp; the next build finds it.";
  return [name, score_mod] {
    as_usage([&] { check_name(*name); });
    std::string text(data_file(*score_mod ? "score_mod.txt" : "encoding.txt"));
    text = replaced(replaced(text, "TITLE", title_of(*name)), "STEM", replaced(*name, "-", "_"));
    return Result{.value = JsonValue::object({{"name", *name}, {"text", text}}), .text = text};
  };
}

}  // namespace tally
