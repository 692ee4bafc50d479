#include "tasks/inspect/marks.hpp"

#include <memory>

#include "tasks/text/text_pattern.hpp"

namespace tally {

std::vector<Mark> text_marks() {
  return {{"section", R"(^( = .* =\s*$|#+ ))"}, {"function", R"(^\s*(func|def)\b)"}, {"paragraph", R"(^\s*$)"}};
}

std::vector<int> find_marks(const Task& task, std::span<const std::int32_t> tokens, std::span<const Mark> marks) {
  std::vector<std::unique_ptr<TextPattern>> patterns;
  for (const Mark& mark : marks) patterns.push_back(std::make_unique<TextPattern>(mark.pattern));
  std::vector<int> found(tokens.size(), -1);
  std::string line;
  bool whole = false, first = true;  // whether the line's first byte is in the text; whether the next byte is its first
  std::size_t begins = 0;            // the token that contains it
  const auto end_line = [&] {
    for (std::size_t n = 0; whole && !first && n < patterns.size(); ++n) {
      if (!patterns[n]->found_in(line)) continue;
      if (found[begins] < 0 || static_cast<std::size_t>(found[begins]) > n) found[begins] = static_cast<int>(n);
      break;
    }
    line.clear();
    whole = first = true;
  };
  const std::vector<std::int32_t> beginning = task.beginning();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (beginning.size() == 1 && tokens[t] == beginning.front()) {
      end_line();
      continue;
    }
    for (const char byte : task.bytes_of(tokens[t])) {
      if (first) begins = t;
      first = false;
      if (byte == '\n') {
        end_line();
      } else {
        line += byte;
      }
    }
  }
  end_line();
  return found;
}

}  // namespace tally
