#include "tasks/training/tree_sum.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// Undefined tensors are zeros.
void add_to(Tensor& sum, const Tensor& term) {
  if (!term.defined()) return;
  if (!sum.defined()) {
    sum = term;
    return;
  }
  kernels(sum.device()).binary(BinaryOp::add, sum.view(), sum.view(), term.view());
  sum.storage()->bump_version();
}

}  // namespace

void TreeSum::add(std::vector<Tensor> term) {
  sums_.emplace_back(1, std::move(term));
  while (sums_.size() > 1 && sums_[sums_.size() - 2].first == sums_.back().first) add_last();
}

std::vector<Tensor> TreeSum::take() {
  check_internal(!sums_.empty(), "tree sum", "there are no terms");
  while (sums_.size() > 1) add_last();
  std::vector<Tensor> sum = std::move(sums_.back().second);
  sums_.clear();
  return sum;
}

TreeShare tree_share(std::int64_t terms, std::int64_t ranks, std::int64_t rank) {
  std::int64_t block = 1;
  while (block * ranks < terms) block *= 2;
  return {std::min(rank * block, terms), std::min((rank + 1) * block, terms), (terms + block - 1) / block};
}

void TreeSum::add_last() {
  const auto [count, terms] = std::move(sums_.back());
  sums_.pop_back();
  auto& [sum_count, sum] = sums_.back();
  sum_count += count;
  for (std::size_t i = 0; i < terms.size(); ++i) add_to(sum[i], terms[i]);
}

Tensor TreeSum::take_with(std::size_t i, Tensor last) {
  for (auto partial = sums_.rbegin(); partial != sums_.rend(); ++partial) {
    Tensor sum = std::exchange(partial->second[i], {});
    add_to(sum, last);
    last = std::move(sum);
  }
  return last;
}

namespace {

// Kernels find the first element of a tensor aligned as in an allocation of its own.
constexpr std::int64_t alignment = 64;

}  // namespace

RankSum::RankSum(const ProcessGroup& ranks, GradientReducer& exchange, std::vector<Shape> shapes, DType dtype,
                 Device device, std::int64_t terms, std::int64_t bucket_elements)
    : ranks_(ranks),
      exchange_(exchange),
      shapes_(std::move(shapes)),
      terms_(terms),
      bucket_elements_(bucket_elements),
      begins_{0},
      set_(shapes_.size()),
      defined_(shapes_.size()) {
  for (const Shape& shape : shapes_) {
    begins_.push_back(begins_.back() + (shape.numel() + alignment - 1) / alignment * alignment);
  }
  constexpr std::int64_t least = std::int64_t{1} << 16, most = std::int64_t{1} << 20;
  if (bucket_elements_ == 0) bucket_elements_ = std::clamp(begins_.back() / 16, least, most);
  elements_ = Tensor::zeros({begins_.back()}, dtype, device);
}

void RankSum::set(std::size_t i, const Tensor& tensor) {
  check_internal(!set_[i], "rank sum", "tensor {} is set twice", i);
  set_[i] = true;
  defined_[i] = tensor.defined() && ranks_.rank() < terms_;
  Tensor place = elements_.detached_slice(0, begins_[i], begins_[i] + shapes_[i].numel());
  // An undefined tensor must add nothing: x + -0 is x, to the bit, even for x = -0, but x + 0 is not.
  if (defined_[i]) {
    place.copy_from(tensor.detached_reshape(place.shape()));
  } else {
    place.fill(-0.0);
  }
  begin_full_buckets();
}

void RankSum::begin_full_buckets() {
  while (first_missing_ < set_.size() && set_[first_missing_]) ++first_missing_;
  const std::int64_t ready = begins_[first_missing_], all = begins_.back();
  while (sent_ < ready) {
    const std::int64_t end = std::min(sent_ + bucket_elements_, all);
    if (end > ready) break;
    exchange_.begin(elements_.detached_slice(0, sent_, end), terms_);
    sent_ = end;
  }
  exchange_.advance();
}

// A part of the batch need not reach every parameter.
std::vector<bool> RankSum::defined_anywhere() const {
  const std::size_t count = defined_.size();
  std::vector<std::byte> flags(count * static_cast<std::size_t>(ranks_.size()));
  std::vector<std::size_t> begins;
  for (std::int64_t r = 0; r <= ranks_.size(); ++r) begins.push_back(count * static_cast<std::size_t>(r));
  const std::size_t own = begins[static_cast<std::size_t>(ranks_.rank())];
  for (std::size_t i = 0; i < count; ++i) flags[own + i] = std::byte{static_cast<bool>(defined_[i])};
  ranks_.all_gather(flags, begins);
  std::vector<bool> anywhere(count);
  for (std::size_t n = 0; n < flags.size(); ++n) {
    if (flags[n] != std::byte{0}) anywhere[n % count] = true;
  }
  return anywhere;
}

std::vector<Tensor> RankSum::take() {
  check_internal(first_missing_ == set_.size(), "rank sum", "tensor {} is missing", first_missing_);
  exchange_.finish();
  const std::vector<bool> defined = defined_anywhere();
  std::vector<Tensor> sums(shapes_.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!defined[i]) continue;
    sums[i] = elements_.detached_slice(0, begins_[i], begins_[i] + shapes_[i].numel()).detached_reshape(shapes_[i]);
  }
  return sums;
}

}  // namespace tally
