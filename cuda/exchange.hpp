// Sums over ranks on GPUs (core/exchange.hpp), by NCCL.
#pragma once

#include <memory>

#include "core/exchange.hpp"
#include "cuda/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// On the current device. All ranks call it. Throws Error where NCCL cannot be loaded, was not there when tally was
// built, or refuses, as it does where two ranks have one GPU.
std::unique_ptr<Exchange> make_exchange(const Ranks& ranks);

}  // namespace tally::TALLY_CUDA_NAMESPACE
