#include "core/exchange.hpp"

#include <list>
#include <utility>

#include "core/backend.hpp"
#include "core/error.hpp"
#include "core/kernels.hpp"

namespace tally {
namespace {

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.view().data),
          static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())};
}

// The tree's sum, in the first term's memory or another's; the terms are used up.
Tensor add_in_tree(const std::vector<Tensor>& terms) {
  std::vector<std::pair<std::int64_t, Tensor>> sums;  // of so many terms each
  const auto add_last = [&sums] {
    const auto [count, last] = sums.back();
    sums.pop_back();
    sums.back().first += count;
    const Tensor& sum = sums.back().second;
    kernels(sum.device()).binary(BinaryOp::add, sum.view(), sum.view(), last.view());
  };
  for (const Tensor& term : terms) {
    sums.emplace_back(1, term);
    while (sums.size() > 1 && sums[sums.size() - 2].first == sums.back().first) add_last();
  }
  while (sums.size() > 1) add_last();
  return sums.front().second;
}

// From and to the host's memory, by messages that go on whenever somebody looks.
class HostExchange final : public Exchange {
 public:
  explicit HostExchange(const Ranks& ranks) : ranks_(ranks) {}

  // Left by an error while messages are on their way: their memory stays, for they may still arrive before all ranks
  // are ended.
  ~HostExchange() override {
    if (!begun_.empty()) new std::list<Bucket>(std::move(begun_));  // NOLINT: never deleted
  }

  void begin(const Tensor& bucket, std::int64_t terms) override {
    if (ranks_.alone()) return;
    const std::vector<std::int64_t> begins = parts_of(bucket.numel(), ranks_.size());
    const Tensor flat = bucket.reshape_view({bucket.numel()});
    Bucket& work = begun_.emplace_back(ranks_);
    work.tag = next_tag();
    for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
      work.parts.push_back(flat.slice_view(0, begins[r], begins[r + 1]));
    }
    const Tensor& own = work.parts[own_index()];
    for (std::int64_t r = 0; r < terms; ++r) {
      work.terms.push_back(r == ranks_.rank() ? own : Tensor::empty(own.shape(), own.dtype()));
    }
    for_each_other([&](std::int64_t to, std::int64_t from) {
      if (from < terms) work.messages.receive(bytes_of(work.terms[static_cast<std::size_t>(from)]), from, work.tag);
      if (ranks_.rank() < terms) work.messages.send(bytes_of(work.parts[static_cast<std::size_t>(to)]), to, work.tag);
    });
    advance();
  }

  void advance() override {
    for (auto work = begun_.begin(); work != begun_.end();) {
      if (work->messages.arrived()) {
        work = go_on(work);
      } else {
        ++work;
      }
    }
  }

  void finish() override {
    while (!begun_.empty()) {
      begun_.front().messages.wait();
      advance();
    }
  }

  void share(const Tensor& all, const std::vector<std::int64_t>& begins) override {
    if (ranks_.alone()) return;
    std::vector<std::size_t> bytes;
    for (const std::int64_t begin : begins) bytes.push_back(static_cast<std::size_t>(begin) * size_of(all.dtype()));
    ranks_.share(bytes_of(all), bytes);
  }

 private:
  struct Bucket {
    explicit Bucket(const Ranks& ranks) : messages(ranks) {}
    std::vector<Tensor> parts;  // one a rank, of the bucket's own memory
    std::vector<Tensor> terms;  // of this rank's part
    Messages messages;
    int tag = 0;
    bool added = false;
  };

  std::size_t own_index() const { return static_cast<std::size_t>(ranks_.rank()); }

  // Pairs of ranks to send to and to receive from, others for each rank at the same time.
  template <class F>
  void for_each_other(F&& f) const {
    const std::int64_t size = ranks_.size(), rank = ranks_.rank();
    for (std::int64_t d = 1; d < size; ++d) f((rank + d) % size, (rank - d + size) % size);
  }

  // Two for each bucket, so that a sum is never taken for a term of a later bucket; they come again when those before
  // are long done.
  int next_tag() {
    constexpr int tags = 1 << 13;
    tag_ = (tag_ + 1) % tags;
    return 1 + 2 * tag_;
  }

  // Of a bucket whose messages have arrived; the next one.
  std::list<Bucket>::iterator go_on(std::list<Bucket>::iterator work) {
    work->messages.wait();
    if (work->added) return begun_.erase(work);
    const Tensor sum = add_in_tree(work->terms);
    Tensor& own = work->parts[own_index()];
    if (sum.view().data != own.view().data) kernels(own.device()).copy(own.view(), sum.view());
    work->terms.clear();
    work->added = true;
    for_each_other([&](std::int64_t to, std::int64_t from) {
      work->messages.receive(bytes_of(work->parts[static_cast<std::size_t>(from)]), from, work->tag + 1);
      work->messages.send(bytes_of(own), to, work->tag + 1);
    });
    return work;
  }

  const Ranks& ranks_;
  std::list<Bucket> begun_;
  int tag_ = 0;
};

class CountingExchange final : public Exchange {
 public:
  explicit CountingExchange(const Ranks& ranks) : ranks_(ranks) {}

  void begin(const Tensor& bucket, std::int64_t terms) override {
    if (ranks_.alone()) return;
    const std::vector<std::int64_t> begins = parts_of(bucket.numel(), ranks_.size());
    const auto own = static_cast<std::size_t>(ranks_.rank());
    const std::int64_t count = begins[own + 1] - begins[own];
    if (static_cast<DeviceType>(bucket.device().index) != DeviceType::cpu) {
      // One bucket after the other, in memory that stays.
      if (!received_.defined() || received_.numel() < terms * count) {
        received_ = Tensor::empty({terms * count}, bucket.dtype(), bucket.device());
      }
      return;
    }
    for (std::int64_t r = 0; r < terms; ++r) {
      if (r != ranks_.rank()) terms_.push_back(Tensor::empty({count}, bucket.dtype(), bucket.device()));
    }
  }
  void advance() override {}
  void finish() override { terms_.clear(); }
  void share(const Tensor&, const std::vector<std::int64_t>&) override {}

 private:
  const Ranks& ranks_;
  std::vector<Tensor> terms_;  // that others send to the CPU
  Tensor received_;            // and to a GPU
};

}  // namespace

std::vector<std::int64_t> parts_of(std::int64_t elements, std::int64_t ranks) {
  std::vector<std::int64_t> begins;
  for (std::int64_t r = 0; r <= ranks; ++r) begins.push_back(elements / ranks * r + elements % ranks * r / ranks);
  return begins;
}

std::unique_ptr<Exchange> make_exchange(const Ranks& ranks, Device device) { return backend(device).exchange(ranks); }

std::unique_ptr<Exchange> make_host_exchange(const Ranks& ranks) { return std::make_unique<HostExchange>(ranks); }
std::unique_ptr<Exchange> make_counting_exchange(const Ranks& ranks) {
  return std::make_unique<CountingExchange>(ranks);
}

}  // namespace tally
