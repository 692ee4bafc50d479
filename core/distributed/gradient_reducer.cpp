#include "core/distributed/gradient_reducer.hpp"

#include <list>
#include <utility>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// The sum in tree order. The result is in the memory of the first term or another; the terms are overwritten.
Tensor add_in_tree(const std::vector<Tensor>& terms) {
  std::vector<std::pair<std::int64_t, Tensor>> sums;  // each with its number of terms
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

// All-reduce through host memory. Messages make progress whenever advance() or finish() is called.
class HostReducer final : public GradientReducer {
 public:
  explicit HostReducer(const ProcessGroup& ranks) : ranks_(ranks) {}

  // After an error, messages may still be under way: their memory is never freed, because they may arrive before all
  // processes are ended.
  ~HostReducer() override {
    if (!begun_.empty()) new std::list<Bucket>(std::move(begun_));  // NOLINT: never deleted
  }

  void begin(const Tensor& bucket, std::int64_t terms) override {
    if (ranks_.alone()) return;
    const std::vector<std::int64_t> begins = parts_of(bucket.numel(), ranks_.size());
    const Tensor flat = bucket.detached_reshape({bucket.numel()});
    Bucket& work = begun_.emplace_back(ranks_);
    work.tag = next_tag();
    for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
      work.parts.push_back(flat.detached_slice(0, begins[r], begins[r + 1]));
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

  void all_gather(const Tensor& all, const std::vector<std::int64_t>& begins) override {
    if (ranks_.alone()) return;
    std::vector<std::size_t> bytes;
    for (const std::int64_t begin : begins) bytes.push_back(static_cast<std::size_t>(begin) * size_of(all.dtype()));
    ranks_.all_gather(bytes_of(all), bytes);
  }

 private:
  struct Bucket {
    explicit Bucket(const ProcessGroup& ranks) : messages(ranks) {}
    std::vector<Tensor> parts;  // one per rank, views into the bucket
    std::vector<Tensor> terms;  // from other ranks, for this rank's part
    Messages messages;
    int tag = 0;
    bool added = false;
  };

  std::size_t own_index() const { return static_cast<std::size_t>(ranks_.rank()); }

  // Calls f(to, from) for the ranks to send to and to receive from, in an order that spreads the load over all ranks.
  template <class F>
  void for_each_other(F&& f) const {
    const std::int64_t size = ranks_.size(), rank = ranks_.rank();
    for (std::int64_t d = 1; d < size; ++d) f((rank + d) % size, (rank - d + size) % size);
  }

  // Each bucket has two tags, so that a sum is never taken for a term of a later bucket. Tags are used again long after
  // their earlier buckets are finished.
  int next_tag() {
    constexpr int tags = 1 << 13;
    tag_ = (tag_ + 1) % tags;
    return 1 + 2 * tag_;
  }

  // Advances a bucket whose messages have arrived, and returns the next one.
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

  const ProcessGroup& ranks_;
  std::list<Bucket> begun_;
  int tag_ = 0;
};

class CountingReducer final : public GradientReducer {
 public:
  explicit CountingReducer(const ProcessGroup& ranks) : ranks_(ranks) {}

  void begin(const Tensor& bucket, std::int64_t terms) override {
    if (ranks_.alone()) return;
    const std::vector<std::int64_t> begins = parts_of(bucket.numel(), ranks_.size());
    const auto own = static_cast<std::size_t>(ranks_.rank());
    const std::int64_t count = begins[own + 1] - begins[own];
    if (static_cast<DeviceType>(bucket.device().index) != DeviceType::cpu) {
      // Buckets follow one after the other in memory that is kept.
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
  void all_gather(const Tensor&, const std::vector<std::int64_t>&) override {}

 private:
  const ProcessGroup& ranks_;
  std::vector<Tensor> terms_;  // terms received by the CPU
  Tensor received_;            // receive buffer of a GPU
};

}  // namespace

std::vector<std::int64_t> parts_of(std::int64_t elements, std::int64_t ranks) {
  std::vector<std::int64_t> begins;
  for (std::int64_t r = 0; r <= ranks; ++r) begins.push_back(elements / ranks * r + elements % ranks * r / ranks);
  return begins;
}

std::unique_ptr<GradientReducer> make_gradient_reducer(const ProcessGroup& ranks, Device device) {
  return backend(device).gradient_reducer(ranks);
}

std::unique_ptr<GradientReducer> make_host_reducer(const ProcessGroup& ranks) {
  return std::make_unique<HostReducer>(ranks);
}
std::unique_ptr<GradientReducer> make_counting_reducer(const ProcessGroup& ranks) {
  return std::make_unique<CountingReducer>(ranks);
}

}  // namespace tally
