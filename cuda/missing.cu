// The kernels of core/kernels.def that no file of this folder holds yet: a call throws Error that names the kernel.
// Whoever writes one deletes its line here; the file goes with the last.
#include "core/error.hpp"
#include "core/kernels.hpp"
#include "cuda/runtime.hpp"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

namespace tally::TALLY_CUDA_NAMESPACE {

#define KERNEL(name, arguments) \
  void name arguments { fail("cuda", "the kernel '" #name "' is not written yet"); }
#define KERNEL_SIZE(name, arguments) \
  std::int64_t name arguments { fail("cuda", "the kernel '" #name "' is not written yet"); }

KERNEL(reduce, (ReduceOp op, View y, View x))
KERNEL(argmax, (View index, View x))
KERNEL(softmax, (View y, View x, bool causal))
KERNEL(softmax_backward, (View d_x, View d_y, View y, bool causal))
KERNEL(layer_norm, (View y, View mean, View rstd, View x, View weight, View bias, double eps))
KERNEL(layer_norm_backward,
       (View d_x, View d_weight, View d_bias, View scratch, View d_y, View x, View weight, View mean, View rstd))
KERNEL(rms_norm, (View y, View rstd, View x, View weight, double eps))
KERNEL(rms_norm_backward, (View d_x, View d_weight, View scratch, View d_y, View x, View weight, View rstd))
KERNEL_SIZE(norm_backward_scratch, (std::int64_t rows, std::int64_t width))
KERNEL(embedding, (View y, View table, View ids))
KERNEL(embedding_backward, (View d_table, View d_y, View ids))
KERNEL(read_distance, (View y, View x, bool cap))
KERNEL(read_distance_backward, (View d_x, View d_y, bool cap))
KERNEL(interpolate, (View y, View table, View position, bool causal))
KERNEL(interpolate_backward, (View d_table, View d_position, View d_y, View table, View position, bool causal))
KERNEL(cumsum, (View y, View x, bool reverse, bool causal))
KERNEL(rotate_pairs, (View y, View x, View cosine, View sine, bool interleaved, bool inverse))
KERNEL(random_uniform, (View y, RandomStream stream, double low, double high))
KERNEL(random_normal, (View y, RandomStream stream, double mean, double deviation))
KERNEL(dropout, (View y, View x, double rate, RandomStream stream))
KERNEL(cross_entropy, (View loss, View log_sum, View logits, View targets, View mask))
KERNEL(cross_entropy_backward, (View d_logits, View d_loss, View log_sum, View logits, View targets, View mask))
KERNEL(sgd_step, (View parameter, View momentum_buffer, View gradient, SgdStep settings))
KERNEL(adam_step, (View parameter, View m, View v, View gradient, AdamStep settings))
KERNEL(squared_norm, (View result, View x))

}  // namespace tally::TALLY_CUDA_NAMESPACE
