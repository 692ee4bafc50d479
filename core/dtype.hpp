// Element types. f32 is the working type; f64 exists for every operation so that gradients can be checked. bf16 is
// stored, filled, copied and converted; some kernels read and write it instead of f32 (core/device/kernels.def).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/math/bfloat16.hpp"

namespace tally {

enum class DType : std::uint8_t { f32, f64, i32, i64, boolean, bf16 };

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::boolean: return 1;
    case DType::bf16: return 2;
  }
  return 0;
}

// The types that operations accept as floating-point numbers.
constexpr bool is_floating(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }
constexpr bool is_integer(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

// The type to compute in with such elements: f32 for bf16.
constexpr DType compute_type(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

// "f32", "f64", "i32", "i64", "bool", "bf16".
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::boolean: return "bool";
    case DType::bf16: return "bf16";
  }
  return "?";
}

inline std::string to_text(DType dtype) { return std::string(name_of(dtype)); }

// dtype_of<float> == DType::f32.
template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_same_v<T, Bfloat16>) return DType::bf16;
}();

// Calls f(T{}) with T = float or double. Kernels only: the operation has checked the type before.
template <class F>
void dispatch_floating(DType dtype, F&& f) {
  if (dtype == DType::f64) {
    f(double{});
  } else {
    f(float{});
  }
}

// Calls f(T{}, M{}) with T likewise and M the type of elements that may be bf16 instead of f32 (core/precision.md).
template <class F>
void dispatch_mixed(DType dtype, DType mixed, F&& f) {
  if (dtype == DType::f64) {
    f(double{}, double{});
  } else if (mixed == DType::bf16) {
    f(float{}, Bfloat16{});
  } else {
    f(float{}, float{});
  }
}

// Calls f(T{}) with the C++ type of any DType.
template <class F>
void dispatch_all(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::boolean: return f(bool{});
    case DType::bf16: return f(Bfloat16{});
  }
}

// The same with a type of numbers to compute with: any except bool and bf16, which the operation has refused.
template <class F>
void dispatch_numbers(DType dtype, F&& f) {
  dispatch_all(dtype, [&]<class T>(T zero) {
    if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, Bfloat16>) f(zero);
  });
}

}  // namespace tally
