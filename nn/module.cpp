#include "nn/module.hpp"

#include <map>
#include <set>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {

Tensor Module::add_parameter(std::string_view name, Tensor value) {
  for (const auto& [existing, tensor] : own_)
    check_internal(existing != name, "module", "two parameters named {}", name);
  set_requires_grad(value);
  own_.emplace_back(name, value);
  return value;
}

void Module::add_child(std::string_view name, Module& child) {
  for (const auto& [existing, module] : children_)
    check_internal(existing != name, "module", "two children named {}", name);
  children_.emplace_back(name, &child);
}

void Module::collect(const std::string& prefix, NamedTensors& into) const {
  for (const auto& [name, tensor] : own_) into.emplace_back(prefix + name, tensor);
  for (const auto& [name, child] : children_) child->collect(formatted("{}{}.", prefix, name), into);
}

NamedTensors Module::parameters() const {
  NamedTensors all;
  collect("", all);
  return all;
}

void Module::add_matmul_operand(const Tensor& value) {
  if (value.defined()) matmul_operands_.push_back(value.detach());
}

std::vector<Tensor> Module::matmul_operands() const {
  std::vector<Tensor> all = matmul_operands_;
  for (const auto& [name, child] : children_) {
    for (const Tensor& operand : child->matmul_operands()) all.push_back(operand);
  }
  return all;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [path, parameter] : parameters()) count += parameter.numel();
  return count;
}

void Module::load(const NamedTensors& values) { load_tensors(parameters(), values); }

void load_tensors(NamedTensors targets, const NamedTensors& values) {
  std::vector<StoredTensor> all;
  for (const auto& [path, value] : values) {
    all.push_back({path, value.dtype(), value.shape(), [&value = value] { return value; }});
  }
  load_tensors(std::move(targets), all);
}

void load_tensors(NamedTensors targets, std::span<const StoredTensor> values) {
  std::map<std::string_view, const StoredTensor*> given;
  std::string faults;
  constexpr std::int64_t most = 10;
  std::int64_t fault_count = 0;
  // Names come from files: control characters are escaped, and at most a few names are printed.
  const auto note = [&](const std::string& path, const std::string& fault) {
    if (++fault_count <= most)
      faults += formatted("{}{} {}", faults.empty() ? "" : "; ", escape_for_print(path), fault);
  };

  for (const StoredTensor& value : values) {
    if (!given.emplace(value.name, &value).second) note(value.name, "is given twice");
  }
  std::set<std::string_view> known;
  for (const auto& [path, target] : targets) {
    known.insert(path);
    const auto found = given.find(path);
    if (found == given.end()) {
      note(path, "is missing");
    } else if (const StoredTensor& value = *found->second;
               value.shape != target.shape() || value.dtype != target.dtype()) {
      note(path, formatted("is {} {} but must be {} {}", value.dtype, value.shape, target.dtype(), target.shape()));
    }
  }
  for (const StoredTensor& value : values) {
    if (!known.contains(value.name)) note(value.name, "is unexpected");
  }
  check(fault_count == 0, "load", "{}{}", faults, fault_count > most ? formatted("; {} more", fault_count - most) : "");

  for (auto& [path, target] : targets) target.copy_from(given.at(path)->read());
}

void Module::project_parameters() const {
  for (const auto& [name, child] : children_) child->project_parameters();
}

void Module::clear_gradients() const {
  for (const auto& [path, parameter] : parameters()) clear_gradient(parameter);
}

}  // namespace tally
