// What work needs in memory, and its refusal when there is not as much.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace tally {

// Work that needs more memory than there is.
class DoesNotFit : public Error {
 public:
  using Error::Error;
};

// Bytes as doubles: absurd sizes must not wrap.
struct MemoryEstimate {
  std::int64_t parameter_count = 0, encoding_parameter_count = 0;
  double parameters = 0, gradients = 0, optimiser = 0;
  double activations = 0;  // what passes through the model, and what is kept of it
  double checkpoint = 0;   // as it is read, beside the model
  double data = 0;         // sequences, or the order of a fixed training set
  double total() const { return parameters + gradients + optimiser + activations + checkpoint + data; }
};

// Bytes that this process can still get: free memory, the limits of its control group and its own.
double available_memory();
// Throws DoesNotFit with the estimate, its parts and the advice when it is more than there is.
void check_fits(const MemoryEstimate& estimate,
                std::string_view advice = "make the model, the batch or the sequences smaller");

// "21.4 GiB".
std::string bytes_text(double bytes);

}  // namespace tally
