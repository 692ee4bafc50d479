// A row of a tile is stored a vector of columns at a time, as wide as the registers of the processor: gelu_piecewise
// looks up its coefficients by permutations of a register.
#include "core/cpu/matmul/epilogue.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/cpu/instruction_sets.hpp"
#include "core/cpu/matmul/gelu_piecewise.hpp"
#include "core/cpu/matmul/microkernel_f32.hpp"
#include "core/matrix_layout.hpp"

namespace tally::cpu {
namespace {

template <class V>
constexpr auto lanes = static_cast<std::int64_t>(sizeof(V) / sizeof(Scalar<V>));

// As many words of 16 bits as V has floats.
template <class V>
struct HalvesOf {
  typedef std::uint16_t Type __attribute__((vector_size(sizeof(V) / 2)));
};
template <class V>
using HalfWords = typename HalvesOf<V>::Type;

template <class V>
TALLY_INLINE V load(const Scalar<V>* x) {
  return load_vector<V>(x);
}
template <class V>
TALLY_INLINE V load(const Bfloat16* x) {
  HalfWords<V> halves;
  std::memcpy(&halves, x, sizeof halves);
  return std::bit_cast<V>(__builtin_convertvector(halves, BitsOf<V>) << 16);
}
template <class V>
TALLY_INLINE void store(Scalar<V>* y, const V& x) {
  store_vector<V>(y, x);
}
// As detail::bfloat16_bits.
template <class V>
TALLY_INLINE void store(Bfloat16* y, const V& x) {
  using Bits = BitsOf<V>;
  const Bits bits = std::bit_cast<Bits>(x), size = bits & 0x7fffffffU;
  Bits result = (size + 0x7fffU + (size >> 16 & 1U)) >> 16;
  result = choose(size < 0x00800000U, Bits{}, result);
  result = choose(size > 0x7f800000U, 0x7fc0U | (size >> 16 & 0x3fU), result);
  const auto halves = __builtin_convertvector(result | (bits >> 16 & 0x8000U), HalfWords<V>);
  std::memcpy(static_cast<void*>(y), &halves, sizeof halves);
}

// The first n lanes; load fills the others with zeros.
template <class V, class X>
TALLY_INLINE V load(const X* x, std::int64_t n) {
  if (n >= lanes<V>) return load<V>(x);
  X part[lanes<V>] = {};
  std::memcpy(static_cast<void*>(part), x, static_cast<std::size_t>(n) * sizeof(X));
  return load<V>(part);
}
template <class V, class X>
TALLY_INLINE void store(X* y, const V& x, std::int64_t n) {
  if (n >= lanes<V>) return store(y, x);
  X part[lanes<V>];
  store(part, x);
  std::memcpy(static_cast<void*>(y), part, static_cast<std::size_t>(n) * sizeof(X));
}

// alpha s + bias + residual of n columns from (i, j) on, as one fma.
template <class V, class T>
TALLY_INLINE V linear_part(const TileEpilogue<T>& to, const V& s, std::int64_t i, std::int64_t j, std::int64_t n) {
  V more{};
  if (to.bias != nullptr && to.bias_column == 1) {
    more = load<V>(to.bias + i * to.bias_row + j, n);
  } else if (to.bias != nullptr) {
    for (std::int64_t l = 0; l < n; ++l) more[l] = to.bias[i * to.bias_row + (j + l) * to.bias_column];
  }
  if (to.residual != nullptr) more += load<V>(to.residual + i * to.ld_residual + j, n);
  if constexpr (sizeof(V) > 16) return to.alpha * s + more;
  if (to.alpha == T{1}) return s + more;
  V r;  // the baseline has no instruction for it
  for (std::int64_t l = 0; l < lanes<V>; ++l) r[l] = std::fma(to.alpha, s[l], more[l]);
  return r;
}

// Applies f to a vector. f64 calls libm lane by lane.
template <class V, class F>
TALLY_INLINE V in_lanes(const V& x, F&& f) {
  if constexpr (std::is_same_v<Scalar<V>, float>) {
    return f(x);
  } else {
    V y{};
    for (std::int64_t l = 0; l < lanes<V>; ++l) y[l] = f(x[l]);
    return y;
  }
}

// f(r, offset in c, j, n) of each vector of a tile.
template <int bytes, class T, class F>
TALLY_INLINE void for_each_vector(const TileEpilogue<T>& to, const T* s, std::int64_t ld_s, std::int64_t rows,
                                  std::int64_t columns, F&& f) {
  using V = Vector<T, bytes>;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; j += lanes<V>) {
      const std::int64_t n = std::min(lanes<V>, columns - j);
      const V sums = s != nullptr ? load<V>(s + i * ld_s + j, n) : V{};
      f(linear_part(to, sums, i, j, n), i * to.ld_c + j, j, n);
    }
  }
}

template <int bytes, class T, class C>
TALLY_INLINE void store_tile(const TileEpilogue<T>& to, C* c, const T* s, std::int64_t ld_s, std::int64_t rows,
                             std::int64_t columns) {
  using V = Vector<T, bytes>;
  auto* const argument = static_cast<C*>(to.argument);
  switch (to.activation) {
    case Epilogue::Activation::none:
      return for_each_vector<bytes>(to, s, ld_s, rows, columns,
                                    [&](const V& r, std::int64_t at, std::int64_t, std::int64_t n)
                                        TALLY_INLINED { store(c + at, r, n); });
    case Epilogue::Activation::apply:
      return functors::visit_activation_of<C>(to.op, [&](auto op) TALLY_INLINED {
        for_each_vector<bytes>(to, s, ld_s, rows, columns,
                               [&](const V& r, std::int64_t at, std::int64_t, std::int64_t n) TALLY_INLINED {
                                 C rounded[lanes<V>];
                                 store(rounded, r);
                                 const V x = load<V>(rounded);
                                 if (argument != nullptr) store(argument + at, x, n);
                                 store(c + at, in_lanes(x, op), n);
                               });
      });
    case Epilogue::Activation::derivative:
      return functors::visit_activation_of<C>(to.op, [&](auto op) TALLY_INLINED {
        for_each_vector<bytes>(to, s, ld_s, rows, columns,
                               [&](const V& r, std::int64_t at, std::int64_t j, std::int64_t n) TALLY_INLINED {
                                 const auto derivative = [&](const auto& v) TALLY_INLINED { return op.derivative(v); };
                                 const V d = r * in_lanes(load<V>(argument + at, n), derivative);
                                 store(c + at, d, n);
                                 if (to.column_sums == nullptr) return;
                                 store(to.column_sums + j, V(load<V>(to.column_sums + j, n) + d), n);
                               });
      });
  }
}

#ifdef TALLY_FOR
template <class T, class C>
TALLY_FOR("v4")
void store_by_64(const TileEpilogue<T>& to, C* c, const T* s, std::int64_t ld_s, std::int64_t rows,
                 std::int64_t columns) {
  store_tile<64>(to, c, s, ld_s, rows, columns);
}
template <class T, class C>
TALLY_FOR("v3")
void store_by_32(const TileEpilogue<T>& to, C* c, const T* s, std::int64_t ld_s, std::int64_t rows,
                 std::int64_t columns) {
  store_tile<32>(to, c, s, ld_s, rows, columns);
}
#endif
template <class T, class C>
void store_in(const TileEpilogue<T>& to, C* c, const T* s, std::int64_t ld_s, std::int64_t rows, std::int64_t columns) {
#ifdef TALLY_FOR
  if (register_bytes() == 64) return store_by_64(to, c, s, ld_s, rows, columns);
  if (register_bytes() == 32) return store_by_32(to, c, s, ld_s, rows, columns);
#endif
  store_tile<16>(to, c, s, ld_s, rows, columns);
}

}  // namespace

template <class T>
TileEpilogue<T>::TileEpilogue(const View& to, std::int64_t ld, const Epilogue& epilogue)
    : ld_c(ld),
      alpha(static_cast<T>(epilogue.alpha)),
      bias(epilogue.bias ? epilogue.bias.as<T>() : nullptr),
      bias_row(epilogue.bias.strides[0]),
      bias_column(epilogue.bias.strides[1]),
      residual(epilogue.residual ? epilogue.residual.as<T>() : nullptr),
      activation(epilogue.activation),
      op(epilogue.op),
      argument(epilogue.argument.data) {
  if (to.dtype == DType::bf16) {
    c_bf16 = to.as<Bfloat16>();
  } else {
    c = to.as<T>();
  }
  if (residual != nullptr) ld_residual = residual == c ? ld : layout_of(epilogue.residual)->ld;
}

template <class T>
TileEpilogue<T> TileEpilogue<T>::at(std::int64_t offset, std::int64_t i, std::int64_t j) const {
  TileEpilogue tile = *this;
  const std::int64_t element = offset + i * ld_c + j;
  if (c != nullptr) tile.c += element;
  if (c_bf16 != nullptr) tile.c_bf16 += element;
  if (bias != nullptr) tile.bias += i * bias_row + j * bias_column;
  if (residual != nullptr) tile.residual += offset + i * ld_residual + j;
  if (argument != nullptr) {
    tile.argument = c != nullptr ? static_cast<void*>(static_cast<T*>(argument) + element)
                                 : static_cast<Bfloat16*>(argument) + element;
  }
  if (column_sums != nullptr) tile.column_sums += j;
  return tile;
}

template <class T>
void TileEpilogue<T>::prefetch(std::int64_t rows, std::int64_t columns) const {
  constexpr std::int64_t line = 64;
  const std::int64_t size = c != nullptr ? sizeof(T) : sizeof(Bfloat16);
  const auto rows_of = [&](const void* data, std::int64_t ld, std::int64_t bytes) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const char* const row = static_cast<const char*>(data) + i * ld * bytes;
      for (std::int64_t at = 0; at < columns * bytes; at += line) __builtin_prefetch(row + at);
    }
  };
  rows_of(c != nullptr ? static_cast<const void*>(c) : c_bf16, ld_c, size);
  if (argument != nullptr) rows_of(argument, ld_c, size);
  if (residual != nullptr && residual != c) rows_of(residual, ld_residual, sizeof(T));
}

template <class T>
void TileEpilogue<T>::store(const T* s, std::int64_t ld_s, std::int64_t rows, std::int64_t columns) const {
  if constexpr (std::is_same_v<T, float>) {
    if (c_bf16 != nullptr) return store_in(*this, c_bf16, s, ld_s, rows, columns);
  }
  store_in(*this, c, s, ld_s, rows, columns);
}

template struct TileEpilogue<float>;
template struct TileEpilogue<double>;

}  // namespace tally::cpu
