// Modules: named parameters in a tree. The path of a parameter ("blocks.0.attention.query.weight") is its name in
// checkpoints.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  // All parameters by path: a module's own in order of registration, then its children's. The tensors share their
  // elements and gradients with the module. A tensor that is used by several modules is listed where it was registered.
  NamedTensors parameters() const;
  std::int64_t parameter_count() const;

  // Copies values into the parameters. Strict: throws one Error that lists all missing and unexpected names and all
  // wrong shapes and types, and changes nothing then.
  void load(const NamedTensors& values);

  // The parameters of this module and its children that matmuls read, or the tensors that hold them, to be rounded
  // together (cache_operands).
  std::vector<Tensor> matmul_operands() const;

  void clear_gradients() const;
  // After each update of the parameters: moves them back into their range, if they have one (Encoding::project).
  virtual void project_parameters() const;

 protected:
  // Registers a leaf that takes gradients and returns it. Throws InternalError for a name used twice.
  Tensor add_parameter(std::string_view name, Tensor value);
  // Undefined tensors are ignored.
  void add_matmul_operand(const Tensor& value);
  // The child must live as long as this module (it is usually a member of it).
  void add_child(std::string_view name, Module& child);

 private:
  void collect(const std::string& prefix, NamedTensors& into) const;
  NamedTensors own_;
  std::vector<Tensor> matmul_operands_;
  std::vector<std::pair<std::string, Module*>> children_;
};

// A tensor of known type and shape that is read on demand.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::function<Tensor()> read;
};

// Copies each value into the tensor of its name; at most one read value is in memory at a time. Throws Error naming
// every value that is missing, unexpected, given twice or of another type or shape, before anything is changed.
void load_tensors(NamedTensors targets, std::span<const StoredTensor> values);
void load_tensors(NamedTensors targets, const NamedTensors& values);

}  // namespace tally
