// Text that is made byte by byte, for the eye: characters are shown when they are whole, and what is not text or steers
// a terminal is escaped.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// UTF-8 that any bytes become: a U+FFFD for each stretch that is not, as long as it may begin a character (Unicode 15,
// section 3.9, "maximal subparts").
std::string with_replacements(std::string_view bytes);

class TextStream {
 public:
  // `stop`: the text ends before it; empty for none. `raw`: nothing is escaped, and nothing waits.
  explicit TextStream(std::string stop = {}, bool raw = false) : stop_(std::move(stop)), raw_(raw) {}

  // What can be shown now. Nothing more comes once it has stopped.
  std::string add(std::string_view bytes);
  // What was still waiting.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string shown(std::string_view bytes) const;

  std::string stop_;
  bool raw_, stopped_ = false;
  std::string waiting_;
};

}  // namespace tally
