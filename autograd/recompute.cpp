// A node that runs f again stands behind one for each result: as its number is the smallest, the gradients of all
// results that get one are there when it runs.
#include "autograd/recompute.hpp"

#include <memory>
#include <utility>

#include "autograd/node.hpp"
#include "core/error.hpp"

namespace tally {

std::vector<Tensor> recomputed(std::string_view name, const std::vector<Tensor>& inputs,
                               std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f) {
  if (!needs_grad(inputs)) return f(inputs);
  std::vector<Tensor> results;
  {
    const NoGrad intermediates_are_not_kept;
    for (const Tensor& result : f(inputs)) results.push_back(result.detach());
  }
  const auto d_results = std::make_shared<std::vector<Tensor>>(results.size());
  std::vector<Saved> kept;
  for (const Tensor& input : inputs) kept.emplace_back(name, input);

  const Tensor& like = results.at(0);
  Tensor all = Tensor::zeros({1}, like.dtype(), like.device());
  record(name, all, inputs, [=, f = std::move(f)](const Tensor& d_all, Gradients& d) {
    const WithGrad graph_of_its_own;
    std::vector<Tensor> leaves;
    for (std::size_t n = 0; n < kept.size(); ++n) {
      leaves.push_back(kept[n].get().detach());
      if (d.wants(n)) set_requires_grad(leaves[n]);
    }
    std::vector<Tensor> again, d_again;
    const std::vector<Tensor> every = f(leaves);
    for (std::size_t n = 0; n < every.size(); ++n) {
      Tensor& d_result = (*d_results)[n];
      if (!d_result.defined() || !requires_grad(every[n])) continue;
      again.push_back(every[n]);
      d_again.push_back(std::exchange(d_result, {}));
    }
    if (!again.empty()) {
      Tensor together = Tensor::zeros({1}, d_all.dtype(), d_all.device());
      record(name, together, again, [d_again](const Tensor&, Gradients& d_each) {
        for (std::size_t n = 0; n < d_again.size(); ++n) d_each.set(n, d_again[n]);
      });
      backward(together);
    }
    for (std::size_t n = 0; n < leaves.size(); ++n) {
      if (!d.wants(n)) continue;
      const Tensor own = gradient(leaves[n]);
      d.set(n, own.defined() ? own : Tensor::zeros(leaves[n].shape(), leaves[n].dtype(), leaves[n].device()));
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

}  // namespace tally
