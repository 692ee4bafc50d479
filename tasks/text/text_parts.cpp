#include "tasks/text/text_parts.hpp"

#include <algorithm>

#include "tasks/text/text_border.hpp"

namespace tally {
namespace {

constexpr std::uint64_t part_bytes = 1 << 20;

}  // namespace

std::optional<TextPart> TextParts::next() {
  while (reader_ || next_ < texts_.size()) {
    const bool first = !reader_;
    const CorpusText& text = *texts_[first ? next_++ : next_ - 1];
    try {
      return part_of(text, first);
    } catch (const Error& why) {
      if (!first) throw ChangedText(text, why.what());
      reader_.reset();
      drop_(text, why);
    }
  }
  return std::nullopt;
}

TextPart TextParts::part_of(const CorpusText& text, bool first) {
  TextPart part{.text = &text, .bytes = std::exchange(rest_, {}), .first = first, .last = false};
  if (first) reader_.emplace(text);
  while (!part.last) {
    const std::size_t seen = part.bytes.size();
    part.bytes += reader_->read(part_bytes);
    part.last = reader_->done();
    // Whether the last byte that was seen makes a border could not be known before.
    const std::size_t border =
        part.last || !with_borders_ ? 0 : last_text_border(part.bytes, std::max<std::size_t>(2, seen) - 2);
    if (border == 0) continue;
    rest_ = part.bytes.substr(border);
    part.bytes.resize(border);
    return part;
  }
  reader_.reset();
  return part;
}

}  // namespace tally
