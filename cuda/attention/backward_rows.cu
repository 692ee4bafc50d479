// The kernels by rows of attention without a score modification.
#include "cuda/attention/backward_rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

template void backward_rows<NoScoreMod>(const AttentionCall&, const DeviceCall<float>&);
template void backward_rows<NoScoreMod>(const AttentionCall&, const DeviceCall<double>&);

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
