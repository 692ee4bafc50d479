#include "core/distributed/process_group.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/distributed/mpi.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// Splits a message into chunks, because a transport limits their size.
template <class Span, class F>
void in_pieces(Span bytes, F&& f) {
  constexpr std::size_t most = std::size_t{1} << 30;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(most, bytes.size())))
    f(bytes.first(std::min(most, bytes.size())));
}

class NullTransport final : public Transport {
 public:
  Request send(std::span<const std::byte>, std::int64_t, int) override { return nullptr; }
  Request receive(std::span<std::byte>, std::int64_t, int) override { return nullptr; }
  bool arrived(std::span<Request>) override { return true; }
  void wait(std::span<Request>) override {}
  [[noreturn]] void abort_all(int code) override { std::_Exit(code); }
};

}  // namespace

void Messages::send(std::span<const std::byte> bytes, std::int64_t to, int tag) {
  in_pieces(bytes, [&](std::span<const std::byte> piece) { requests_.push_back(by_->send(piece, to, tag)); });
}

void Messages::receive(std::span<std::byte> bytes, std::int64_t from, int tag) {
  in_pieces(bytes, [&](std::span<std::byte> piece) { requests_.push_back(by_->receive(piece, from, tag)); });
}

ProcessGroup& ProcessGroup::instance() {
  static ProcessGroup ranks;
  return ranks;
}

const ProcessGroup& ProcessGroup::world() { return instance(); }

const ProcessGroup& ProcessGroup::one() {
  static const ProcessGroup ranks;
  return ranks;
}

const ProcessGroup& ProcessGroup::counted() {
  if (world().alone()) return one();
  static NullTransport silence;
  static const ProcessGroup ranks(world().rank(), world().size(), silence);
  return ranks;
}

void ProcessGroup::join() {
  if (mpi::started_processes() == 1) return;
  ProcessGroup& ranks = instance();
  static std::unique_ptr<Transport> transport;
  transport = mpi::join(ranks.rank_, ranks.size_);
  ranks.by_ = transport.get();
}

void ProcessGroup::all_gather(std::span<std::byte> all, std::span<const std::size_t> begins) const {
  if (alone()) return;
  const auto part = [&](std::int64_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    return all.subspan(begins[r], begins[r + 1] - begins[r]);
  };
  constexpr int tag = 0;
  Messages messages(*this);
  for (std::int64_t d = 1; d < size_; ++d) {
    messages.receive(part((rank_ - d + size_) % size_), (rank_ - d + size_) % size_, tag);
    messages.send(part(rank_), (rank_ + d) % size_, tag);
  }
  messages.wait();
}

std::vector<std::int64_t> ProcessGroup::values_of_all(std::int64_t value) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  std::vector<std::size_t> begins(all.size() + 1);
  for (std::size_t r = 0; r < begins.size(); ++r) begins[r] = r * sizeof value;
  all[static_cast<std::size_t>(rank_)] = value;
  all_gather(std::as_writable_bytes(std::span(all)), begins);
  return all;
}

void ProcessGroup::barrier() const { any(false); }

bool ProcessGroup::any(bool value) const {
  return std::ranges::any_of(values_of_all(value ? 1 : 0), [](std::int64_t one) { return one != 0; });
}

void ProcessGroup::check_same(std::int64_t value, const std::string& what) const {
  const std::vector<std::int64_t> all = values_of_all(value);
  for (std::size_t r = 0; r < all.size(); ++r) {
    check(all[r] == all[0], "mpi", "{} is {} for rank {} and {} for rank 0", what, all[r], r, all[0]);
  }
}

void ProcessGroup::abort_all(int code) const {
  if (!alone()) by_->abort_all(code);
  std::_Exit(code);
}

void ProcessGroup::leave() {
  if (world().alone()) return;
  instance() = ProcessGroup();
  mpi::leave();
}

}  // namespace tally
