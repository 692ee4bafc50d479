// All-reduce on GPUs (core/distributed/gradient_reducer.hpp), by NCCL.
#pragma once

#include <memory>

#include "core/distributed/gradient_reducer.hpp"
#include "cuda/runtime/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// On the current device. All ranks call it. Throws Error if NCCL cannot be loaded, was missing when tally was built, or
// reports an error, for example because two ranks use one GPU.
std::unique_ptr<GradientReducer> make_gradient_reducer(const ProcessGroup& ranks);

}  // namespace tally::TALLY_CUDA_NAMESPACE
