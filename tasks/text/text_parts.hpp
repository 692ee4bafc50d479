// The texts of a corpus one stretch after the other, so that a long one is never held whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "tasks/text/corpus.hpp"

namespace tally {

using TextPointers = std::vector<const CorpusText*>;

// A stretch of a text; all of it, where it is no longer than about 1 MiB or may not be cut.
struct TextPart {
  const CorpusText* text;
  std::string bytes;
  bool first, last;  // of the text
};

// A text that is another one since it was selected, of which parts have been used.
class ChangedText : public Error {
 public:
  ChangedText(const CorpusText& text, const char* why) : Error(why), text_(&text) {}
  const CorpusText& text() const { return *text_; }

 private:
  const CorpusText* text_;
};

// The texts in parts that can be encoded by themselves, each read when it is asked for. `with_borders`: a text may be
// cut (tasks/text/text_border.hpp). drop(text, why) is told of those that have vanished or changed before any part was
// given out; later next() throws ChangedText.
class TextParts {
 public:
  using Drop = std::function<void(const CorpusText& text, const Error& why)>;
  TextParts(TextPointers texts, bool with_borders, Drop drop)
      : texts_(std::move(texts)), with_borders_(with_borders), drop_(std::move(drop)) {}

  // Nothing at the end.
  std::optional<TextPart> next();

 private:
  TextPart part_of(const CorpusText& text, bool first);

  TextPointers texts_;
  bool with_borders_;
  Drop drop_;
  std::size_t next_ = 0;
  std::optional<CorpusTextReader> reader_;
  std::string rest_;  // of the text at work, behind the last border
};

}  // namespace tally
