#include "tasks/commands/parts/text_stream.hpp"

#include <algorithm>

#include "core/utf8.hpp"
#include "tasks/print/printable.hpp"

namespace tally {
namespace {

// The number of final bytes that may be an incomplete character.
std::size_t unfinished(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const std::size_t whole = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return whole > back ? back : 0;
  }
  return 0;
}

// The number of final bytes that may be the beginning of `word`.
std::size_t begun(std::string_view text, std::string_view word) {
  for (std::size_t size = std::min(text.size(), word.size() - 1); size > 0; --size) {
    if (text.substr(text.size() - size) == word.substr(0, size)) return size;
  }
  return 0;
}

}  // namespace

std::string with_replacements(std::string_view bytes) {
  std::string text;
  while (true) {
    const std::size_t valid = std::min(find_invalid_utf8(bytes), bytes.size());
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) return text;
    append_utf8(text, 0xfffd);
    bytes.remove_prefix(1);
  }
}

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return {};
  waiting_ += bytes;
  if (!stop_.empty()) {
    if (const std::size_t at = waiting_.find(stop_); at != std::string::npos) {
      waiting_.resize(at);
      const std::string last = finish();
      stopped_ = true;
      return last;
    }
  }
  const std::size_t held = std::max(stop_.empty() ? 0 : begun(waiting_, stop_), raw_ ? 0 : unfinished(waiting_));
  const std::string text = shown(std::string_view(waiting_).substr(0, waiting_.size() - held));
  waiting_.erase(0, waiting_.size() - held);
  return text;
}

std::string TextStream::finish() {
  const std::string text = shown(waiting_);
  waiting_.clear();
  return text;
}

std::string TextStream::shown(std::string_view bytes) const {
  if (raw_) return std::string(bytes);
  std::string text;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find_first_of("\n\t"), bytes.size());
    text += printable(bytes.substr(0, end));
    if (end < bytes.size()) text += bytes[end];
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return text;
}

}  // namespace tally
