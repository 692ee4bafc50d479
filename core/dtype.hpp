// Element types. f32 is the working type; f64 exists for every operation so that gradients can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

enum class DType : std::uint8_t { f32, f64, i32, i64, boolean };

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::boolean: return 1;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }
constexpr bool is_integer(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

// "f32", "f64", "i32", "i64", "bool".
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::boolean: return "bool";
  }
  return "?";
}

inline std::string to_text(DType dtype) { return std::string(name_of(dtype)); }

namespace detail {
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
}  // namespace detail

// dtype_of<float> == DType::f32.
template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

// Calls f(T{}) with T = float or double. Kernels only: the operation has checked the type before.
template <class F>
void dispatch_floating(DType dtype, F&& f) {
  if (dtype == DType::f64) {
    f(double{});
  } else {
    f(float{});
  }
}

// Calls f(T{}) with the C++ type of any DType.
template <class F>
void dispatch_all(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: f(float{}); return;
    case DType::f64: f(double{}); return;
    case DType::i32: f(std::int32_t{}); return;
    case DType::i64: f(std::int64_t{}); return;
    case DType::boolean: f(bool{}); return;
  }
}

}  // namespace tally
