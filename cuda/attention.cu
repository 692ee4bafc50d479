// Tiled attention forward (cuda/attention_device.hpp has the layout). A block has 32 queries of one head; key tiles go
// by from the diagonal to the left. For each, a first pass makes logits with the running sum along the keys, the second
// takes their exponentials and adds up values.
//
// Traffic: q, k, v are read once by each block that needs them, (T/32) times k and v in all, mostly from the L2 cache;
// written are o, two numbers a row, and with a scan one number per row and key tile. Nothing of size T x T.
#include "core/kernels.hpp"
#include "cuda/attention_device.hpp"
#include "cuda/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

using namespace attention_kernels;

template <class T, Kind kind>
__global__ void attention_forward(DeviceCall<T> call) {
  constexpr bool sticks = kind == Kind::stick_breaking;
  SHARED_DYNAMIC(T, memory);
  T* const k_tile = memory;                       // [tile][padded]
  T* const v_tile = k_tile + tile * call.padded;  // the same
  T* const pairs = v_tile + tile * call.padded;   // logits, [keys][tile_ld rows]
  T* const gate_tile = pairs + tile * tile_ld;    // as k_tile, with gates of their own
  const RowThread at(call, blockIdx.x);
  const std::int64_t last_row = std::min<std::int64_t>(call.queries, (std::int64_t{blockIdx.x} + 1) * tile) - 1;
  const std::int64_t seen_keys = call.keys - call.queries + last_row + 1;

  T q[row_part], gate_q[row_part], o[row_part];
  at.load(q, call.q, call.width, call.scale);
  if (call.own_gates) at.load(gate_q, call.gate_query, call.gate_width, call.scale);
  for (int c = 0; c < row_part; ++c) o[c] = 0;
  T m = std::numeric_limits<T>::lowest(), n = 0;
  RunningSum<T> position;

  for (std::int64_t key_tile = (seen_keys + tile - 1) / tile - 1; key_tile >= 0; --key_tile) {
    const std::int64_t first = key_tile * tile;
    const int count = static_cast<int>(std::min<std::int64_t>(tile, seen_keys - first));
    __syncthreads();  // the tile before has been read
    load_tile(k_tile, call.k.head(at.batch, at.head), first, count, call.width, call.padded, T{1});
    load_tile(v_tile, call.v.head(at.batch, at.head), first, count, call.value_width, call.padded, T{1});
    if (call.own_gates) {
      load_tile(gate_tile, call.gate_key.head(at.batch, at.head), first, count, call.gate_width, call.padded, T{1});
    }
    __syncthreads();
    const T carried = position.settle();
    if (kind != Kind::none && call.carry != nullptr && at.valid && at.leads()) {
      call.carry[at.index(call) * call.tiles() + key_tile] = carried;
    }

    T largest = m;
    for (int j = count - 1; j >= 0; --j) {
      const std::int64_t key = first + j;
      const bool seen = at.valid && (sticks && !call.attend_current ? key < at.place : key <= at.place);
      const T s = at.dot(q, k_tile + j * call.padded);
      T gate_score = s;
      if constexpr (contextual(kind)) {
        if (call.own_gates) gate_score = at.dot(gate_q, gate_tile + j * call.padded);
      }
      T logit = s;
      if (seen) {
        if constexpr (contextual(kind))
          logit += Term<T, kind>(call, at, position.add(attention::gate(gate_score))).value;
        logit += bias_of(call, at, key);
        if constexpr (sticks) logit = attention::stick_weight(logit, position.add(attention::stick_taken(logit)));
        largest = logit > largest ? logit : largest;
      }
      if (at.leads()) pairs[j * tile_ld + at.lane] = seen ? logit : sticks ? T{0} : std::numeric_limits<T>::lowest();
    }
    __syncwarp();  // the threads of a row read what its first has written
    if constexpr (!sticks) {
      const T factor = math::exp(m - largest);
      n *= factor;
      for (int c = 0; c < row_part; ++c) o[c] *= factor;
      m = largest;
    }
    for (int j = 0; j < count; ++j) {
      T weight = pairs[j * tile_ld + at.lane];
      if constexpr (!sticks) {
        weight = math::exp(weight - m);
        n += weight;
      }
      if (at.valid) weight *= kept(call, at.index(call), first + j);
      at.add(o, weight, v_tile + j * call.padded);
    }
  }
  if (!at.valid) return;

  T* const stat = call.row_stat + 2 * at.index(call);
  T factor = 1;
  if constexpr (sticks) {
    const T taken = position.settle(), rest = math::exp(-taken);
    if (at.leads()) stat[0] = taken, stat[1] = rest;
    if (call.remainder.data != nullptr) {
      const Rows<T> remainder = call.remainder.head(at.batch, at.head);
      for (int c = 0; c < row_part; ++c) {
        if (at.element(c) < call.value_width) o[c] += rest * remainder.at(at.row, at.element(c));
      }
    }
  } else {
    factor = T{1} / n;
    if (at.leads()) stat[0] = m, stat[1] = factor;
  }
  at.store(call.output, o, call.value_width, factor);
}

}  // namespace

std::int64_t attention_carry(std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  return heads * queries * ((keys + tile - 1) / tile);
}

void attention(const AttentionCall& call) {
  if (call.output.numel() == 0) return;
  dispatch_floating(call.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    const DeviceCall<T> device = device_call<T>(call);
    const std::size_t shared =
        sizeof(T) * static_cast<std::size_t>((device.own_gates ? 3 : 2) * tile * device.padded + tile * tile_ld);
    visit_kind(call.scan.kind, [&](auto kind) {
      launch(attention_forward<T, decltype(kind)::value>, grid_of(call.queries(), call),
             static_cast<unsigned>(tile * device.row_threads), shared, context().stream, device);
    });
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
