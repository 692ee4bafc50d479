#include "cuda/emulator/block_messages.hpp"

#include <vector>

#include "core/error.hpp"
#include "cuda/emulator/block.hpp"

namespace tally::cuda_host {

std::string text_of(const uint3& index) { return formatted("({}, {}, {})", index.x, index.y, index.z); }
std::string text_of(const SourceLine& line) { return formatted("{}:{}", line.file, line.line); }

std::string hexadecimal(std::uint32_t mask) {
  std::string text = "0x";
  for (int digit = 7; digit >= 0; --digit) text += "0123456789abcdef"[mask >> (4 * digit) & 15u];
  return text;
}

std::string Block::name_of(const Thread& thread) const { return formatted("thread {}", text_of(thread.index)); }

std::string Block::call_of(const Thread& thread) const {
  return formatted("{} calls {} with mask {} at {}", name_of(thread), thread.request.name,
                   hexadecimal(thread.request.mask), text_of(thread.request.line));
}

// One line of text per source line, with the number of threads that wait there and the first of them.
std::string Block::who_waits_where() const {
  std::string text;
  std::vector<bool> told(static_cast<std::size_t>(count_));
  for (int n = 0; n < count_; ++n) {
    const Thread& first = threads_[static_cast<std::size_t>(n)];
    if (told[static_cast<std::size_t>(n)] || first.state == State::gone) continue;
    int alike = 0;
    for (int m = n; m < count_; ++m) {
      const Thread& other = threads_[static_cast<std::size_t>(m)];
      if (other.state != first.state || !same(other.line, first.line)) continue;
      told[static_cast<std::size_t>(m)] = true;
      ++alike;
    }
    const char* const what = first.state == State::in_warp ? first.request.name : "__syncthreads";
    text += formatted("\n  {}{}: {} at {}", name_of(first), alike > 1 ? formatted(" and {} more", alike - 1) : "", what,
                      text_of(first.line));
    if (first.state == State::in_warp) text += formatted(", mask {}", hexadecimal(first.request.mask));
  }
  if (gone_ > 0) text += formatted("\n  {} threads have left the kernel", gone_);
  return text;
}

std::string Block::stack_overflow_at(const void* address) const {
  for (const auto& fiber : fibers_) {
    if (current_ != nullptr && fiber->guards(address)) {
      return formatted("kernel launched at {}, block {}, {}: more than the {} bytes of a thread's stack are needed",
                       text_of(launch_->line), text_of(index_of(block_number_, launch_->grid)), name_of(*current_),
                       stack_bytes);
    }
  }
  return {};
}

}  // namespace tally::cuda_host
