// Reverse-mode differentiation: nodes run by falling sequence number from a queue.
//
// A node's number is larger than the numbers of the producers of its inputs. So when a node is taken from the queue,
// every consumer of its output has run and the gradient of its output is complete. This needs no recursion and no
// in-degree counting.
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/finite.hpp"
#include "autograd/node.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

struct Entry {
  std::shared_ptr<AutogradData> output;  // of the node
  bool operator<(const Entry& other) const { return output->producer->sequence < other.output->producer->sequence; }
};

// Results that wait for their producer to run. When an error ends the pass, their gradients are dropped: they must not
// enter the next one.
struct Queue : std::priority_queue<Entry> {
  ~Queue() {
    for (const Entry& entry : c) {
      entry.output->gradient = {};
      entry.output->deliveries = 0;
    }
  }
};

// sum += x. The first gradient to arrive is stored unchanged; it may share its elements with other tensors. The second
// one therefore makes a fresh sum, which only this slot owns, and later ones are added in place. Matmuls and norms add
// to the first, too, if no one shares it (Gradients::so_far).
void accumulate(AutogradData& data, const Tensor& x, bool owned) {
  if (!data.gradient.defined()) {
    data.gradient = x;
    return;
  }
  const Tensor before = to_f32(data.gradient), more = to_f32(x);  // a bf16 result may have bf16 gradients
  const Tensor sum = owned ? before : Tensor::empty(x.shape(), before.dtype(), x.device());
  kernels(x.device()).binary(BinaryOp::add, sum.view(), before.view(), more.view());
  sum.storage()->bump_version();
  data.gradient = sum;
}

// How many gradients each leaf will get: it may be an input of several operations, or several inputs of one.
using Awaited = std::unordered_map<const AutogradData*, std::int64_t>;

Awaited awaited_by_leaves(const AutogradData& loss) {
  Awaited awaited;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> to_visit;
  const auto reach = [&](const AutogradData& data) {
    const Node* const producer = data.producer.get();
    if (producer == nullptr) {
      ++awaited[&data];
    } else if (seen.insert(producer).second) {
      to_visit.push_back(producer);
    }
  };
  reach(loss);
  while (!to_visit.empty()) {
    const Node* const node = to_visit.back();
    to_visit.pop_back();
    for (const std::shared_ptr<AutogradData>& input : node->inputs) {
      if (input != nullptr) reach(*input);
    }
  }
  return awaited;
}

void run_backward(const Tensor& loss, Tensor d_loss, const std::function<void(AutogradData& leaf)>& complete) {
  check(requires_grad(loss), "backward", "the loss does not depend on any tensor that takes gradients");
  if (!d_loss.defined()) {
    check(loss.numel() == 1, "backward", "the loss has shape {}; give d_loss for anything but one element",
          loss.shape());
    d_loss = Tensor::full(loss.shape(), 1.0, loss.dtype(), loss.device());
  }
  check(d_loss.shape() == loss.shape() && d_loss.dtype() == loss.dtype(), "backward",
        "d_loss has shape {} {}, the loss {} {}", d_loss.shape(), d_loss.dtype(), loss.shape(), loss.dtype());
  check(!requires_grad(d_loss), "backward", "d_loss takes gradients, but tally computes first derivatives only");

  const NoGrad first_derivatives_only;
  Awaited awaited = complete ? awaited_by_leaves(*loss.autograd()) : Awaited();
  Queue queue;
  // Adds a gradient to a tensor; a producer that is reached for the first time joins the queue.
  const auto deliver = [&](const std::shared_ptr<AutogradData>& data, Tensor gradient, bool is_part) {
    const bool first = !data->gradient.defined();
    const bool leaf = data->producer == nullptr;
    // A leaf's gradient is the user's to read and change, so it never shares elements with the graph.
    if (leaf && first && !is_part && !holds_elements_alone(gradient)) gradient = gradient.clone();
    accumulate(*data, gradient, leaf || data->deliveries > 1);
    ++data->deliveries;
    if (!leaf && first) queue.push({data});
    if (leaf && complete && --awaited[data.get()] == 0) complete(*data);
  };
  deliver(loss.autograd(), std::move(d_loss), false);

  while (!queue.empty()) {
    const std::shared_ptr<AutogradData> output = queue.top().output;
    queue.pop();
    Tensor d_y = std::exchange(output->gradient, {});
    output->deliveries = 0;
    Node& node = *output->producer;
    check(node.backward != nullptr, node.name,
          "backward ran through this operation before and freed what it kept; compute the forward pass again");
    Gradients gradients(node);
    {
      const ProfileScope scope(node.name, " backward");
      const Backward run = std::exchange(node.backward, nullptr);
      run(d_y, gradients);
      d_y = {};  // an input's gradient may be a view of it, and then be its only owner
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!gradients.wants(i)) continue;
      const bool added = gradients.is_added(i);
      check_internal(added != gradients[i].defined(), node.name, "backward gave no gradient for input {}", i);
      if (finite_checks()) {
        const Tensor& given = added ? node.inputs[i]->gradient : gradients[i];
        check_finite(node.name, formatted("the gradient of input {}", i), given);
      }
      if (added) {
        ++node.inputs[i]->deliveries;
      } else {
        deliver(node.inputs[i], std::move(gradients[i]), gradients.is_part(i));
      }
    }
  }
}

}  // namespace

void backward(const Tensor& loss, Tensor d_loss) { run_backward(loss, std::move(d_loss), {}); }

void backward(const Tensor& loss, const std::function<void(AutogradData& leaf)>& complete) {
  run_backward(loss, {}, complete);
}

}  // namespace tally
