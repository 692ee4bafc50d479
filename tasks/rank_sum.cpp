#include "tasks/rank_sum.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace tally {
namespace {

constexpr std::size_t bucket_elements = std::size_t{1} << 20;

// Which tensors are there on a rank that has a term: a part of the batch need not reach every parameter.
std::vector<bool> defined_over_ranks(const Ranks& ranks, const std::vector<Tensor>& tensors, std::int64_t terms) {
  const std::size_t count = tensors.size();
  std::vector<std::byte> flags(count * static_cast<std::size_t>(ranks.size()));
  std::vector<std::size_t> begins;
  for (std::int64_t r = 0; r <= ranks.size(); ++r) begins.push_back(count * static_cast<std::size_t>(r));
  const std::size_t own = begins[static_cast<std::size_t>(ranks.rank())];
  for (std::size_t i = 0; i < count; ++i) flags[own + i] = std::byte{tensors[i].defined()};
  ranks.share(flags, begins);
  std::vector<bool> defined(count);
  for (std::int64_t r = 0; r < terms; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      if (flags[begins[static_cast<std::size_t>(r)] + i] != std::byte{0}) defined[i] = true;
    }
  }
  return defined;
}

template <class T>
void add_buckets(const Ranks& ranks, const std::vector<std::span<T>>& spans, std::int64_t terms) {
  std::size_t left = 0;
  for (const std::span<T>& span : spans) left += span.size();
  std::vector<T> bucket(std::min(left, bucket_elements));
  std::size_t tensor = 0, at = 0;  // where the bucket begins
  while (left > 0) {
    bucket.resize(std::min(left, bucket_elements));
    const auto over_bucket = [&](auto&& copy) {
      std::size_t i = tensor, from = at;
      for (std::size_t filled = 0; filled < bucket.size();) {
        const std::size_t count = std::min(bucket.size() - filled, spans[i].size() - from);
        copy(spans[i].subspan(from, count), std::span<T>(bucket).subspan(filled, count));
        filled += count;
        from += count;
        if (from == spans[i].size()) ++i, from = 0;
      }
      return std::pair(i, from);
    };
    over_bucket([](std::span<T> part, std::span<T> of_bucket) { std::ranges::copy(part, of_bucket.begin()); });
    ranks.add_in_tree(std::span<T>(bucket), terms);
    std::tie(tensor, at) =
        over_bucket([](std::span<T> part, std::span<T> of_bucket) { std::ranges::copy(of_bucket, part.begin()); });
    left -= bucket.size();
  }
}

}  // namespace

void add_over_ranks(const Ranks& ranks, std::vector<Tensor>& tensors, const std::vector<Shape>& shapes, DType dtype,
                    Device device, std::int64_t terms) {
  if (ranks.alone()) return;
  tensors.resize(shapes.size());
  const std::vector<bool> defined = defined_over_ranks(ranks, tensors, terms);
  std::vector<Tensor> on_host;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!defined[i]) continue;
    const bool here = tensors[i].defined() && ranks.rank() < terms;
    on_host.push_back(Tensor::zeros(shapes[i], dtype));
    // What is not there adds nothing: x + -0 is x, to the bit, also where x is -0; x + 0 is not.
    if (here) {
      on_host.back().copy_from(tensors[i]);
    } else {
      on_host.back().fill(-0.0);
    }
  }
  const auto spans_of = [&]<class T>() {
    std::vector<std::span<T>> spans;
    for (const Tensor& tensor : on_host) spans.push_back(tensor.span<T>());
    return spans;
  };
  if (dtype == DType::f64) {
    add_buckets(ranks, spans_of.template operator()<double>(), terms);
  } else {
    add_buckets(ranks, spans_of.template operator()<float>(), terms);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = defined[i] ? on_host[next++].to(device) : Tensor();
  }
}

}  // namespace tally
