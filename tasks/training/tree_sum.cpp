#include "tasks/training/tree_sum.hpp"

#include <algorithm>

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

}  // namespace tally
