// What a run will need, told before any of it is there: parameters by name, and bytes of memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/shape.hpp"
#include "tasks/config.hpp"

namespace tally {

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// A model's parameters by path, from one whose tensors take no memory. Throws what building the model throws.
NamedShapes parameter_shapes(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                             std::int64_t max_length);
NamedShapes parameter_shapes(const RunConfig& config, const Task& task);

std::int64_t parameter_count(const NamedShapes& shapes);
// Of these, what encodings brought.
std::int64_t encoding_parameter_count(const NamedShapes& shapes);

// A run that needs more memory than there is.
class DoesNotFit : public Error {
 public:
  using Error::Error;
};

// Bytes as doubles: absurd sizes must not wrap.
struct MemoryEstimate {
  std::int64_t parameter_count = 0, encoding_parameter_count = 0;
  double parameters = 0, gradients = 0, optimiser = 0;
  double activations = 0;  // of a training step or of an evaluation, whichever takes more
  double data = 0;         // the order of a fixed training set
  double total() const { return parameters + gradients + optimiser + activations + data; }
};

// Of training, within a factor of about 1.5. Throws DoesNotFit when the model cannot even be made to be asked.
MemoryEstimate estimate_training(const RunConfig& config, const Task& task);
// Of an evaluation on sequences of up to `length` tokens.
MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t length);

// Bytes that this process can still get: free memory, the limits of its control group and its own.
double available_memory();
// Throws DoesNotFit with the estimate and its parts when it is more than there is.
void check_fits(const MemoryEstimate& estimate);

// "21.4 GiB".
std::string bytes_text(double bytes);

}  // namespace tally
