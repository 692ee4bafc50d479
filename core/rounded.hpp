// f32 tensors rounded to bf16, if matmul_precision() is bf16 (core/precision.md): matmul operands and saved
// activations, in half the memory.
#pragma once

#include "core/tensor.hpp"

namespace tally {

// Who consumes a result. If only matmuls do, and they use bf16, the producer writes bf16 directly. Such consumers are
// linear(), mlp(), and the operands of fused attention. Results of layers and of attention are written so on the CPU
// only, whose kernels can do it.
enum class ReadBy : bool { anyone, products };

// Whether matmuls read x rounded to bf16: x is f32, and the precision is bf16.
bool is_rounded_by_products(const Tensor& x);

// Whether x covers all elements of its storage.
bool has_all_of_its_storage(const Tensor& x);

// f32 x in bf16. If x covers its storage, the result has the same layout and is cached: it is shared by all callers
// while any of them holds it (Storage::rounded). Without autograd data.
Tensor rounded_to_bf16(const Tensor& x);

// The type to compute in: f32 for elements stored as bf16.
inline DType widened(DType type) { return type == DType::bf16 ? DType::f32 : type; }
// x in f32 with the same layout if it is bf16; otherwise x.
Tensor widened(const Tensor& x);

}  // namespace tally
