// Facts about a model that is not made: its parameters by name, the form of its attention, the lengths it accepts. The
// model is built on a device that only counts, so it takes no memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device.hpp"
#include "core/dtype.hpp"
#include "core/shape.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// While it lives, the default device is one that counts the memory the chosen device would need
// (core/device/meta.cpp).
class OnlyCounting {
 public:
  OnlyCounting();
  ~OnlyCounting();
  OnlyCounting(const OnlyCounting&) = delete;
  OnlyCounting& operator=(const OnlyCounting&) = delete;

  // Current and peak bytes of tensors.
  double live() const;
  double peak() const;
  Device host() const;
  bool stands_for_cpu() const { return device_ == host(); }

 private:
  Device chosen_, device_;
  std::size_t before_ = 0;
};

// A model, and the longest sequence that its learned tables cover.
struct ModelSetting {
  const ModelOptions& options;
  const EncodingChoice& encoding;
  std::int64_t vocabulary = 0, max_length = 0;
  DType dtype = DType::f32;

  // On the default device.
  std::unique_ptr<SequenceModel> make() const;
};
ModelSetting model_of(const RunConfig& config, const Task& task);

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// A model's parameters by path. The overloads make the model, and throw the same errors.
NamedShapes shapes_of(const SequenceModel& model);
NamedShapes parameter_shapes(const ModelSetting& model);
NamedShapes parameter_shapes(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                             std::int64_t max_length);
NamedShapes parameter_shapes(const RunConfig& config, const Task& task);

std::int64_t parameter_count(const NamedShapes& shapes);
// The share of encodings among these parameters.
std::int64_t encoding_parameter_count(const NamedShapes& shapes);

// How attention of the first `layers` layers is computed. "composed" means that it is materialised, because the user
// chose it or the encoding requires it: one with weights, a whole attention or a policy that tiled attention does not
// support. "tiled and composed" means that heads or layers differ. "none" is a model without attention.
std::string attention_form(const ModelSetting& model, std::int64_t layers);

// Throws Error naming the limit if an encoding of the model does not accept sequences of this length.
void check_length(const ModelSetting& model, std::int64_t length);
// Whether this split reaches rows of the model's position tables that no training sequence reaches.
bool reaches_untrained_rows(const RunConfig& config, const Task& task, const Split& split);

}  // namespace tally
