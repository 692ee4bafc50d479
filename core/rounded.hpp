// Tensors of f32 rounded to bf16, where product_precision() asks for it (core/precision.md): what products read, and
// what is kept of activations, in half the memory.
#pragma once

#include "core/tensor.hpp"

namespace tally {

// Who reads a result: products alone (linear(), mlp(), and as q, k, v and other operands of products of tiled
// attention) get it in bf16 where they round to it; what layers and attention give, on the CPU, whose kernels write
// that.
enum class ReadBy : bool { anyone, products };

// Whether products read x rounded to bf16: f32, in that precision.
bool is_rounded_by_products(const Tensor& x);

// Whether as many elements are stored as x has.
bool has_all_of_its_storage(const Tensor& x);

// x of f32 in bf16. Where x has all elements of its storage they lie as in x, and are rounded once for all who ask as
// long as somebody keeps them (Storage::rounded). Without autograd data.
Tensor rounded_to_bf16(const Tensor& x);

// What is computed with numbers of this type: f32 with those that are kept in bf16.
inline DType widened(DType type) { return type == DType::bf16 ? DType::f32 : type; }
// x in f32 where it is bf16, its elements lying as in x; else x.
Tensor widened(const Tensor& x);

}  // namespace tally
