// The kernels by keys of attention without a policy.
#include "cuda/attention/backward_keys.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

template void backward_keys<NoPolicy>(const AttentionCall&, const DeviceCall<float>&);
template void backward_keys<NoPolicy>(const AttentionCall&, const DeviceCall<double>&);

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
