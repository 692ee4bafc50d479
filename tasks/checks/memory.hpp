// Estimates of memory, and the refusal of work that does not fit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace tally {

// Thrown if work needs more memory than is available.
class DoesNotFit : public Error {
 public:
  using Error::Error;
};

// Bytes as doubles: absurd sizes must not wrap.
struct MemoryEstimate {
  std::int64_t parameter_count = 0, encoding_parameter_count = 0;
  double parameters = 0, gradients = 0, optimiser = 0;
  double activations = 0;  // the model's intermediate results, saved activations, and messages between ranks
  double checkpoint = 0;   // the largest part of it that is read at a time
  double data = 0;         // sequences, or the order of a fixed training set
  bool more = false;       // more than can be counted: the numbers are lower bounds
  bool at_most = false;    // depends on learned values or other ranks: the numbers are upper bounds
  double total() const { return parameters + gradients + optimiser + activations + checkpoint + data; }
};

// Throws DoesNotFit with the estimate, its parts and the advice if it exceeds the memory that this process can still
// get. If a GPU computes, its memory must hold everything the GPU computes with, and the host's the data that is read.
void check_fits(const MemoryEstimate& estimate,
                std::string_view advice = "make the model, the batch or the sequences smaller");

// "21.4 GiB".
std::string bytes_text(double bytes);

}  // namespace tally
