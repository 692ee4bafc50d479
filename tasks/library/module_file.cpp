#include "tasks/library/module_file.hpp"

#include <vector>

#include "core/error.hpp"
#include "core/io/safetensors.hpp"

namespace tally {

void save(const Module& module, const std::string& path) {
  NamedTensors values = module.parameters();
  for (auto& [name, value] : values) value = value.to(Device{});
  write_safetensors(path, values);
}

void load(Module& module, const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::vector<StoredTensor> values;
  for (const SafetensorsEntry& entry : file.entries()) {
    check(entry.dtype.has_value(), "load", "{}: {} has type {}, which tally does not compute with", path, entry.name,
          entry.type);
    values.push_back({entry.name, *entry.dtype, entry.shape, [&file, &entry] { return file.read(entry.name); }});
  }
  try {
    load_tensors(module.parameters(), values);
  } catch (const Error& error) {
    throw Error(formatted("{}, in {}", error.what(), path));
  }
}

}  // namespace tally
