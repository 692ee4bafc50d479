// What work needs in memory, and its refusal when there is not as much.
#pragma once

#include <cstdint>
#include <optional>
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
  double activations = 0;  // what passes through the model, what is kept of it, and what ranks send each other
  double checkpoint = 0;   // what of it is read at a time, beside the model
  double data = 0;         // sequences, or the order of a fixed training set
  bool more = false;       // than can be counted: these are the least
  bool at_most = false;    // what is learned or read, or other ranks, decide how much it is: these are the most
  double total() const { return parameters + gradients + optimiser + activations + checkpoint + data; }
};

// Bytes that work can take. Where a GPU computes, what it computes with must fit into its own memory, and what is read
// into the host's.
struct MemoryAtHand {
  double host = 0;
  std::optional<double> gpu;
};
// Throws DoesNotFit with the estimate, its parts and the advice when it is more than there is.
void check_fits(const MemoryEstimate& estimate, const MemoryAtHand& at_hand, std::string_view advice);
// The same with what the default device and this process can still get now.
void check_fits(const MemoryEstimate& estimate,
                std::string_view advice = "make the model, the batch or the sequences smaller");

// "21.4 GiB".
std::string bytes_text(double bytes);

}  // namespace tally
