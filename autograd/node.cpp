#include "autograd/node.hpp"

#include <atomic>
#include <utility>

#include "autograd/finite.hpp"
#include "autograd/ops/check.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

thread_local bool recording = true;
std::atomic<std::uint64_t> next_sequence{1};
std::atomic<std::int64_t> nodes_alive{0};

}  // namespace

// A chain of a million nodes would be a million nested destructors. Each destroyed node moves its inputs to a list, and
// the outermost destructor on this thread empties the list.
Node::~Node() {
  nodes_alive.fetch_sub(1, std::memory_order_relaxed);
  thread_local std::vector<std::shared_ptr<AutogradData>>* doomed = nullptr;
  if (doomed != nullptr) {
    for (auto& input : inputs) doomed->push_back(std::move(input));
    return;
  }
  std::vector<std::shared_ptr<AutogradData>> list = std::move(inputs);
  doomed = &list;
  backward = nullptr;
  while (!list.empty()) {
    const std::shared_ptr<AutogradData> last = std::move(list.back());
    list.pop_back();
  }
  doomed = nullptr;
}

void Gradients::set(std::size_t input, Tensor gradient) {
  if (!wants(input)) return;
  check_internal(gradient.shape() == shape(input), node_.name, "gradient of input {} has shape {}, the input {}", input,
                 gradient.shape(), shape(input));
  check_internal(!values_[input].defined(), node_.name, "gradient of input {} was set twice", input);
  values_[input] = std::move(gradient);
}

void Gradients::set_part(std::size_t input, Tensor gradient) {
  set(input, std::move(gradient));
  parts_[input] = wants(input);
}

Tensor Gradients::take_target(std::size_t input) const {
  AutogradData* const data = node_.inputs[input].get();
  if (data == nullptr || !data->take_target || data->gradient.defined()) return {};
  const Tensor target = data->take_target();
  if (target.defined()) data->target = target.storage().get();
  return target;
}

Tensor Gradients::sum_in_target(std::size_t input) const {
  const AutogradData* const data = node_.inputs[input].get();
  if (data == nullptr || !data->gradient.defined() || data->gradient.storage().get() != data->target) return {};
  data->gradient.storage()->bump_version();
  return data->gradient;
}

Tensor Gradients::so_far(std::size_t input) const {
  const AutogradData* const data = node_.inputs[input].get();
  if (data == nullptr || data->producer == nullptr || !data->gradient.defined()) return {};
  const Tensor& sum = data->gradient;
  if (!holds_elements_alone(sum) || sum.dtype() == DType::bf16) return {};
  sum.storage()->bump_version();
  return sum;
}

const Tensor& Saved::get() const {
  if (value_.defined()) {
    check(value_.version() == version_, operation_,
          "a value kept for backward was changed in place after the forward pass (version {}, now {})", version_,
          value_.version());
  }
  return value_;
}

bool grad_enabled() { return recording; }
GradMode::GradMode(bool value) : before_(std::exchange(recording, value)) {}
GradMode::~GradMode() { recording = before_; }

bool requires_grad(const Tensor& x) { return x.autograd() != nullptr && x.autograd()->requires_grad; }

bool needs_grad(std::span<const Tensor> inputs) {
  if (!recording) return false;
  for (const Tensor& x : inputs) {
    if (requires_grad(x)) return true;
  }
  return false;
}

bool needs_grad(std::initializer_list<Tensor> inputs) {
  return needs_grad(std::span<const Tensor>(inputs.begin(), inputs.size()));
}

void record(std::string_view name, Tensor& y, std::span<const Tensor> inputs, Backward backward) {
  if (finite_checks()) check_finite(name, "the result", y);
  if (!needs_grad(inputs)) return;
  auto node = std::make_shared<Node>();
  nodes_alive.fetch_add(1, std::memory_order_relaxed);
  node->name = name;
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  for (const Tensor& x : inputs) {
    node->inputs.push_back(requires_grad(x) ? x.autograd() : nullptr);
    node->input_shapes.push_back(x.shape());
  }
  node->backward = std::move(backward);
  auto data = std::make_shared<AutogradData>();
  data->requires_grad = true;
  data->producer = std::move(node);
  y.set_autograd(std::move(data));
}

void record_no_derivative(std::string_view name, std::initializer_list<Tensor> inputs) {
  check(!needs_grad(inputs), name, "has no derivative, but an input takes gradients; detach it or use NoGrad");
}

void set_requires_grad(Tensor& leaf, bool value) {
  check(leaf.defined() && is_floating(leaf.dtype()), "requires_grad", "only floating tensors take gradients, not {}",
        leaf.defined() ? to_text(leaf.dtype()) : std::string("an undefined one"));
  if (leaf.autograd() == nullptr) leaf.set_autograd(std::make_shared<AutogradData>());
  check(leaf.autograd()->producer == nullptr, "requires_grad",
        "this tensor is the result of an operation, not a leaf; detach it first");
  leaf.autograd()->requires_grad = value;
}

Tensor gradient(const Tensor& leaf) {
  check(requires_grad(leaf), "gradient", "this tensor takes no gradient");
  if (const std::shared_ptr<Node>& producer = leaf.autograd()->producer) {
    fail("gradient", "only leaves keep their gradient; this tensor is the result of '{}'", producer->name);
  }
  return leaf.autograd()->gradient;
}

void set_gradient(const Tensor& leaf, Tensor value) {
  check(requires_grad(leaf), "gradient", "this tensor takes no gradient");
  check(value.shape() == leaf.shape() && value.dtype() == leaf.dtype(), "gradient",
        "shape {} {} is not that of the tensor, {} {}", value.shape(), value.dtype(), leaf.shape(), leaf.dtype());
  check(!requires_grad(value), "gradient", "a gradient cannot take gradients itself: first derivatives only");
  leaf.autograd()->gradient = std::move(value);
}

void clear_gradient(const Tensor& leaf) {
  if (leaf.autograd() != nullptr) leaf.autograd()->gradient = {};
}

bool Tensor::requires_grad() const { return tally::requires_grad(*this); }
Tensor& Tensor::set_requires_grad(bool value) {
  tally::set_requires_grad(*this, value);
  return *this;
}
Tensor Tensor::grad() const { return gradient(*this); }
void Tensor::clear_grad() const { clear_gradient(*this); }
void Tensor::backward() const { tally::backward(*this); }

std::int64_t live_nodes() { return nodes_alive.load(std::memory_order_relaxed); }

}  // namespace tally
