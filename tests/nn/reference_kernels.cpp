#include "tests/nn/reference_kernels.hpp"

#include "core/cpu/attention/reference.hpp"
#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"

namespace tally {
namespace {

int living = 0;

const Kernels& kernels_with_reference() {
  static const Kernels table = [] {
    Kernels own = backend(Device{}).kernels;
    own.attention = [](const AttentionCall& call, void*) { cpu::reference::attention(call); };
    own.attention_backward = [](const AttentionCall& call, const AttentionGradients& gradients, void*) {
      cpu::reference::attention_backward(call, gradients);
    };
    return own;
  }();
  return table;
}

}  // namespace

// The linker takes this definition and leaves core/device/kernels.cpp, which only holds the other one, in its archive.
const Kernels& kernels(Device device) {
  return living > 0 && device == Device{} ? kernels_with_reference() : backend(device).kernels;
}

namespace testing {

WithReferenceAttention::WithReferenceAttention() { ++living; }
WithReferenceAttention::~WithReferenceAttention() { --living; }

}  // namespace testing
}  // namespace tally
