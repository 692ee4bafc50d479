// The node that runs f again is the producer of one node per result. Its number is the smallest of them, so all
// gradients of results have arrived when it runs.
#include "autograd/recompute.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// The start of each part of the inputs, and the end of the last one.
std::vector<std::int64_t> bounds_of(std::string_view name, const std::vector<Tensor>& inputs, const Parts& parts) {
  const std::int64_t size = inputs.at(0).size(parts.axis);
  std::int64_t widest = 1;
  for (const Tensor& input : inputs) {
    check(input.size(parts.axis) == size, name, "inputs that are cut along axis {} need one size there: {} and {}",
          parts.axis, inputs[0].shape(), input.shape());
    if (size > 0) widest = std::max(widest, input.numel() / size);
  }
  const std::int64_t each = std::max<std::int64_t>(1, parts.numbers / widest / parts.step) * parts.step;
  std::vector<std::int64_t> bounds{0};
  while (size - bounds.back() >= 2 * each) bounds.push_back(bounds.back() + each);
  bounds.push_back(size);
  return bounds;
}

// f with all its results at once, or part by part.
std::vector<Tensor> results_of(const std::vector<Tensor>& inputs, int axis, const std::vector<std::int64_t>& bounds,
                               const Recomputed& f) {
  if (bounds.size() == 2) return f(inputs);
  std::vector<std::vector<Tensor>> by_result;
  for (std::size_t part = 0; part + 1 < bounds.size(); ++part) {
    std::vector<Tensor> own;
    for (const Tensor& input : inputs) own.push_back(slice(input, axis, bounds[part], bounds[part + 1]));
    const std::vector<Tensor> results = f(own);
    by_result.resize(results.size());
    for (std::size_t n = 0; n < results.size(); ++n) by_result[n].push_back(results[n]);
  }
  std::vector<Tensor> all;
  for (std::vector<Tensor>& pieces : by_result) all.push_back(concat(std::exchange(pieces, {}), axis));
  return all;
}

// Runs f again on leaves that take gradients, and runs its backward from the gradients of its results: d_result(n,
// result).
template <class DResult>
void differentiate(std::string_view name, const std::vector<Tensor>& leaves, const Recomputed& f,
                   const DResult& d_result) {
  std::vector<Tensor> again, d_again;
  const std::vector<Tensor> every = f(leaves);
  for (std::size_t n = 0; n < every.size(); ++n) {
    const Tensor d = d_result(n, every[n]);
    if (!d.defined() || !requires_grad(every[n])) continue;
    again.push_back(every[n]);
    d_again.push_back(d);
  }
  if (again.empty()) return;
  Tensor together = Tensor::zeros({1}, again[0].dtype(), again[0].device());
  record(name, together, again, [d_again = std::move(d_again)](const Tensor&, Gradients& d_each) {
    for (std::size_t n = 0; n < d_again.size(); ++n) d_each.set(n, d_again[n]);
  });
  backward(together);
}

Tensor gradient_or_zeros(const Tensor& leaf) {
  const Tensor own = gradient(leaf);
  return own.defined() ? own : Tensor::zeros(leaf.shape(), leaf.dtype(), leaf.device());
}

std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs,
                               const std::optional<Parts>& parts, Recomputed f) {
  const int axis = parts.has_value() ? parts->axis : 0;
  const std::vector<std::int64_t> bounds =
      parts.has_value() ? bounds_of(name, inputs, *parts) : std::vector<std::int64_t>{0, 0};
  if (!needs_grad(inputs)) return results_of(inputs, axis, bounds, f);
  std::vector<Tensor> results;
  {
    const NoGrad intermediates_are_not_kept;
    for (const Tensor& result : results_of(inputs, axis, bounds, f)) results.push_back(result.detach());
  }
  const auto d_results = std::make_shared<std::vector<Tensor>>(results.size());
  std::vector<Saved> kept;
  for (const Tensor& input : inputs) kept.emplace_back(name, input);

  const Tensor& like = results.at(0);
  Tensor all = Tensor::zeros({1}, like.dtype(), like.device());
  record(name, all, inputs, [=, f = std::move(f)](const Tensor&, Gradients& d) {
    const WithGrad graph_of_its_own;
    const bool in_parts = bounds.size() > 2;
    std::vector<Tensor> d_inputs(kept.size());
    std::vector<std::int64_t> done(d_results->size(), 0);
    for (std::size_t part = 0; part + 1 < bounds.size(); ++part) {
      const std::int64_t begin = bounds[part], end = bounds[part + 1];
      std::vector<Tensor> leaves;
      for (std::size_t n = 0; n < kept.size(); ++n) {
        const Tensor whole = kept[n].get().detach();
        leaves.push_back(in_parts ? whole.detached_slice(axis, begin, end) : whole);
        if (d.wants(n)) set_requires_grad(leaves[n]);
      }
      differentiate(name, leaves, f, [&](std::size_t n, const Tensor& result) {
        if (!in_parts) return std::exchange((*d_results)[n], {});
        const std::int64_t from = std::exchange(done[n], done[n] + result.size(axis));
        const Tensor& d_result = (*d_results)[n];
        return d_result.defined() ? d_result.detached_slice(axis, from, done[n]) : Tensor();
      });
      for (std::size_t n = 0; n < leaves.size(); ++n) {
        if (!d.wants(n)) continue;
        const Tensor d_leaf = gradient_or_zeros(leaves[n]);
        if (in_parts) {
          const Tensor& whole = kept[n].get();
          if (part == 0) d_inputs[n] = Tensor::empty(whole.shape(), whole.dtype(), whole.device());
          d_inputs[n].detached_slice(axis, begin, end).copy_from(d_leaf);
        } else {
          d_inputs[n] = d_leaf;
        }
      }
    }
    d_results->assign(d_results->size(), Tensor());
    for (std::size_t n = 0; n < d_inputs.size(); ++n) {
      if (d.wants(n)) d.set(n, d_inputs[n]);
    }
  });
  for (std::size_t n = 0; n < results.size(); ++n) {
    record(name, results[n], {all}, [d_results, n](const Tensor& d_y, Gradients& d) {
      (*d_results)[n] = d_y;
      d.set(0, Tensor::zeros({1}, d_y.dtype(), d_y.device()));
    });
  }
  return results;
}

}  // namespace

std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs, Recomputed f) {
  return recomputed(name, inputs, std::nullopt, std::move(f));
}

std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs, const Parts& parts,
                               Recomputed f) {
  return recomputed(name, inputs, std::optional<Parts>(parts), std::move(f));
}

}  // namespace tally
