#include "cuda/emulator/stream.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cuda/emulator/settings.hpp"

namespace tally::cuda_host {
namespace {

bool can_run(const Stream& stream) {
  if (stream.items.empty()) return false;
  const Work& first = stream.items.front();
  return first.event == nullptr || first.event->reached >= first.awaited;
}

}  // namespace

cudaError_t lose_capture(Stream& stream) {
  stream.capture->invalid = true;
  return detail::result(cudaErrorStreamCaptureUnsupported);
}

Streams& streams() {
  static Streams* const instance = new Streams;
  return *instance;
}

bool Streams::known(const Stream* stream) const { return std::find(all.begin(), all.end(), stream) != all.end(); }

bool Streams::run_one() {
  std::vector<Stream*> candidates;
  std::copy_if(all.begin(), all.end(), std::back_inserter(candidates),
               [](const Stream* stream) { return can_run(*stream); });
  if (candidates.empty()) return false;
  Stream& stream = *candidates[rng.below(static_cast<std::uint32_t>(candidates.size()))];
  const Work next = std::move(stream.items.front());
  stream.items.pop_front();
  next.work();
  return true;
}

void Streams::run_all() {
  while (run_one()) {
  }
}

void Streams::put(Stream& stream, Work work) {
  if (stream.capture != nullptr) {
    stream.capture->work.push_back(std::move(work));
    return;
  }
  stream.items.push_back(std::move(work));
  const bool delay = settings().delay_streams;
  while ((!delay || rng.chance(0.3)) && run_one()) {
  }
}

}  // namespace tally::cuda_host
