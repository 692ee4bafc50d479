// The recorded graph: a node per operation, and the gradient state of a tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

class Gradients;

// Takes the gradient of the operation's output and sets the gradients of its inputs.
using Backward = std::function<void(const Tensor& d_y, Gradients& d)>;

// One recorded operation. Nodes are numbered as they are made; an input's producer always has a smaller number.
struct Node {
  std::string_view name;  // a string literal: "softmax"
  std::uint64_t sequence = 0;
  std::vector<std::shared_ptr<AutogradData>> inputs;  // null if the input takes no gradient
  std::vector<Shape> input_shapes;
  Backward backward;  // empty once it has run

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // destroys long chains without recursion
};

// The target of a Tensor's opaque pointer. Leaves have no producer and keep their gradient; for other tensors
// `gradient` is used only while backward runs.
struct AutogradData {
  bool requires_grad = false;
  std::shared_ptr<Node> producer;
  Tensor gradient;
  std::uint32_t deliveries = 0;  // gradients that have arrived while backward runs
  // Returns memory for the gradient, next to the gradients of other tensors, so that one matmul can read them all.
  // Later calls return an undefined tensor. Empty if the gradient may be a separate tensor.
  std::function<Tensor()> take_target;
  const Storage* target = nullptr;  // returned by take_target
};

// Gradients of a node's inputs, filled in by its backward. d.wants(i) returns whether input i takes a gradient, so that
// unneeded matmuls are skipped.
class Gradients {
 public:
  explicit Gradients(const Node& node)
      : node_(node), values_(node.inputs.size()), added_(node.inputs.size()), parts_(node.inputs.size()) {}
  bool wants(std::size_t input) const { return node_.inputs[input] != nullptr; }
  const Shape& shape(std::size_t input) const { return node_.input_shapes[input]; }
  // Ignored if the input takes no gradient. The shape must be the input's. Once per input.
  void set(std::size_t input, Tensor gradient);
  // The same for a dense view whose memory is shared only with gradients of other inputs. A leaf takes it without a
  // copy.
  void set_part(std::size_t input, Tensor gradient);
  bool is_part(std::size_t input) const { return parts_[input]; }
  Tensor& operator[](std::size_t input) { return values_[input]; }
  // The sum of the input's gradients so far, f32 or f64 and dense, if no one else shares its elements. A matmul or a
  // norm may add to it in its epilogue, and calls added_to_it() instead of set(). Undefined otherwise.
  Tensor so_far(std::size_t input) const;
  void added_to_it(std::size_t input) { added_[input] = true; }
  // Memory of any strides. If defined, the operation should write the input's gradient there and set() it.
  Tensor take_target(std::size_t input) const;
  // As so_far(), for a sum in the memory from take_target(). It may be bf16 and have any strides.
  Tensor sum_in_target(std::size_t input) const;
  bool is_added(std::size_t input) const { return added_[input]; }

 private:
  const Node& node_;
  std::vector<Tensor> values_;
  std::vector<bool> added_, parts_;
};

// A value saved for backward. It is held without its autograd data (an output saved by its own node would never be
// freed), and with its version. get() throws Error naming the operation if the elements were changed in place since.
class Saved {
 public:
  Saved() = default;
  Saved(std::string_view operation, const Tensor& value)
      : operation_(operation), value_(value.detach()), version_(value.defined() ? value.version() : 0) {}
  const Tensor& get() const;

 private:
  std::string_view operation_;
  Tensor value_;
  std::uint64_t version_ = 0;
};

// --- grad mode ---
// Whether operations record on this thread.
bool grad_enabled();
// Switches recording on this thread on or off within its scope.
class GradMode {
 public:
  explicit GradMode(bool recording);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};
// Records even inside a NoGrad.
struct WithGrad : GradMode {
  WithGrad() : GradMode(true) {}
};

// --- recording ---
// Whether an operation on these inputs has to be recorded now.
bool needs_grad(std::initializer_list<Tensor> inputs);
bool needs_grad(std::span<const Tensor> inputs);
// Records that y came from the inputs, if any of them takes a gradient and recording is on.
void record(std::string_view name, Tensor& y, std::span<const Tensor> inputs, Backward backward);
inline void record(std::string_view name, Tensor& y, std::initializer_list<Tensor> inputs, Backward backward) {
  record(name, y, std::span<const Tensor>(inputs.begin(), inputs.size()), std::move(backward));
}
// For an operation without a derivative: throws Error("[name] has no derivative ...") if an input wants one.
void record_no_derivative(std::string_view name, std::initializer_list<Tensor> inputs);

// --- leaves ---
// Makes a floating leaf take gradients (or no longer). Throws for integer tensors and results of operations.
void set_requires_grad(Tensor& leaf, bool requires_grad = true);
bool requires_grad(const Tensor& x);
// The accumulated gradient of a leaf; undefined before the first backward. Throws for a tensor that takes none.
Tensor gradient(const Tensor& leaf);
void set_gradient(const Tensor& leaf, Tensor gradient);
void clear_gradient(const Tensor& leaf);

// --- backward ---
// Adds d loss / d leaf to the gradient of every leaf that loss depends on. loss: one element, floating (d_loss = 1), or
// any shape with d_loss given. Nodes run in descending order of their number from a queue, never by recursion. Each
// node frees its saved activations when it has run; a second pass through the same graph throws. First derivatives
// only: the backward pass is not recorded.
void backward(const Tensor& loss, Tensor d_loss = {});
// As backward(loss). `complete` is called with each leaf as soon as nothing more will be added to its gradient in this
// pass. It may take that gradient, so that it is sent while the pass continues.
void backward(const Tensor& loss, const std::function<void(AutogradData& leaf)>& complete);

// Number of nodes alive, for leak tests.
std::int64_t live_nodes();

}  // namespace tally
