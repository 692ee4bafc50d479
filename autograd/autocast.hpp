// Mixed precision, like PyTorch's autocast: if matmul_precision() is bf16, some f32 tensors are bf16 instead. This file
// has the rules, core/precision.md the list of tensors and its measurements. Sums and parameters are never bf16.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

class Saved;

// The precision that the consumers of a result need. matmul_input: only linear(), mlp() and fused attention read it, so
// it is bf16 if matmuls use bf16.
enum class OutputPrecision : bool { full, matmul_input };

// Whether matmuls round operands of this type to bf16.
bool matmul_uses_bf16(DType dtype);

// The type in which an operation that computes in `computed` writes its result.
DType output_type(OutputPrecision precision, DType computed);

// Whether x was written in bf16 as a matmul input.
bool is_matmul_input(const Tensor& x);

// x in bf16, without autograd data. If f32 x covers its storage, the result has the same layout and is cached: all
// callers share it while any of them holds it (Storage::cached_bf16).
Tensor to_bf16_cached(const Tensor& x);

// x in f32 with the same layout if it is bf16, otherwise x. Differentiable; the gradient stays f32.
Tensor to_f32(const Tensor& x);

// --- operands ---
// As to_bf16_cached(), but a part of a tensor that has a cached copy becomes a view of that copy.
Tensor bf16_operand(const Tensor& x);

// x as an operand of the device's matmul c = x other or other x. The CPU takes any types. CUDA takes two of one type:
// bf16 if one of the three tensors is bf16, or if both operands have cached copies.
Tensor matmul_operand(const Tensor& x, const Tensor& other, const Tensor& c);

// x as a matmul operand of fused attention: rounded to bf16 and stored as bf16 if matmuls use bf16.
// Differentiable.
Tensor fused_operand(const Tensor& x);

// The cached bf16 copy of x for matmuls on CUDA, which share it while the caller holds it. Undefined on the CPU, whose
// matmuls round f32 operands as they pack them.
Tensor cache_operand(const Tensor& x);

// The same for parameters, all rounded by one kernel. Views of a larger tensor are skipped: their copies are views of
// its copy.
std::vector<Tensor> cache_operands(std::span<const Tensor> parameters);

// --- saved activations ---
// Saves x for backward, in bf16 if matmuls use bf16. Leaves stay f32, because they are in memory anyway, and
// so do broadcast tensors and all tensors while nothing is recorded.
Saved save_activation(std::string_view operation, const Tensor& x);

// Saves the matmul operand x if `other` takes a gradient. x becomes the saved tensor, so that its f32 can be freed.
Saved save_operand(std::string_view operation, Tensor& x, const Tensor& other);

// An uninitialised cached bf16 copy of x, to be written by a kernel that reads x anyway. Undefined if
// save_activation(x) needs none, or has one already.
Tensor bf16_cache_to_fill(const Tensor& x);

// The same for a gradient that CUDA matmuls may read. The gradient holds the copy until an element changes.
Tensor held_bf16_to_fill(const Tensor& gradient);

}  // namespace tally
