// For tests of other libraries' models: their logits, and modified copies of their folders.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/io/safetensors.hpp"
#include "core/math/random.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/foreign/weights.hpp"
#include "tests/core/io_files.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::testing {

namespace fs = std::filesystem;

inline void put(const std::string& path, std::string_view bytes) {
  fs::remove(path);  // much faster than overwriting it, on file systems that then sync
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string folder_of(std::string_view name) {
  return formatted("{}{}", TALLY_SOURCE_DIR "/tests/reference/foreign/", name);
}

// The f64 logits of the folder's model for the reference's tokens.
inline Tensor logits_of(const std::string& folder, const Tensor& tokens, const Settings& settings = {},
                        const std::string& pe = "") {
  const ForeignDescription description = read_description(folder);
  RunConfig config = config_of(description, pe);
  for (const auto& [name, value] : settings) config.set(name, value);
  const NoGrad no_grad;
  return load_foreign(folder, description, config).model->forward(tokens).to(DType::f64);
}

inline double largest(const Tensor& x) {
  double most = 0;
  for (const double value : x.to_vector<double>()) most = std::max(most, std::abs(value));
  return most;
}

inline double difference(const Tensor& a, const Tensor& b) { return largest(a - b); }

// A modified copy of a reference.
class ForeignFolder : public ::testing::Test {
 protected:
  std::string copy(const char* name) {
    const std::string path = (fs::path(folder_.path()) / formatted("{}-{}", name, ++copies_)).string();
    fs::copy(folder_of(name), path);
    return path;
  }
  // config.json, modified by `change`.
  std::string with_config(const char* name, const std::function<void(JsonValue&)>& change) {
    const std::string path = copy(name);
    JsonValue config = read_json(path + "/config.json");
    change(config);
    put(path + "/config.json", write_json(config, 1));
    return path;
  }
  // model.safetensors, modified by `change`.
  std::string with_tensors(const char* name, const std::function<void(NamedTensors&)>& change) {
    const std::string path = copy(name);
    NamedTensors tensors;
    {
      const SafetensorsFile file = SafetensorsFile::open(path + "/model.safetensors");
      for (const SafetensorsEntry& entry : file.entries()) {
        tensors.emplace_back(entry.name, entry.dtype ? file.read(entry.name) : file.read_widened(entry.name));
      }
    }
    change(tensors);
    write_safetensors(path + "/model.safetensors", tensors);
    return path;
  }
  static std::string error(const std::string& folder, const std::string& pe = "") {
    return error_of([&] {
      const ForeignDescription description = read_description(folder);
      load_foreign(folder, description, config_of(description, pe));
    });
  }
  void expect_refused(const std::string& folder, std::initializer_list<std::string_view> parts) {
    const std::string message = error(folder);
    EXPECT_TRUE(contains(message, folder)) << message;
    for (const std::string_view part : parts) EXPECT_TRUE(contains(message, part)) << part << "\n" << message;
  }
  static Tensor& tensor(NamedTensors& tensors, std::string_view name) {
    return std::ranges::find(tensors, name, &NamedTensors::value_type::first)->second;
  }

  TemporaryFolder folder_;
  int copies_ = 0;
};

}  // namespace tally::testing
