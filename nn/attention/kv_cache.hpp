// The KV cache of one layer: tensors of earlier tokens, while a text is generated token by token.
//
// Eviction: with a window or chunks a layer keeps the sink tokens and all keys that the next query or a later one may
// attend to. Eviction shifts the indices of the remaining keys and of the queries, by a whole number of chunks. The
// mask and the distances to keys after the gap stay the same; distances to sink tokens change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/attention/mask.hpp"
#include "core/tensor.hpp"

namespace tally {

struct AttentionInput;
struct Score;

// One cached tensor. New rows are written after the existing ones if its memory has room, so that a token does not copy
// all earlier rows. Copies share the memory. If several copies append to the same rows, the first appends in place, and
// the others allocate their own memory.
class CacheEntry {
 public:
  const Tensor& tensor() const { return tensor_; }  // undefined at first
  void set(Tensor tensor) {
    tensor_ = std::move(tensor);
    room_.reset();
  }
  // For cached state that is replaced, because it has no row per token.
  Tensor& state() {
    room_.reset();
    return tensor_;
  }
  // Shapes must agree except along `axis`. Without gradients.
  void append(const Tensor& rows, int axis);

 private:
  // The memory whose first rows are tensor_, and how many of its rows any copy has written.
  struct Room {
    Tensor memory;
    std::int64_t filled;
  };

  Tensor tensor_;
  std::shared_ptr<Room> room_;
};

// By name: keys and values, and tensors of encodings.
using KvCache = std::map<std::string, CacheEntry, std::less<>>;

// The suffix that AttentionInput::keep_keys appends to a name.
inline constexpr std::string_view kept_beside_keys = ", beside keys";

// Number of keys after the sink tokens that are masked for all queries from index `next` on, in whole chunks.
std::int64_t num_evicted(const AttentionMask& mask, std::int64_t next);

// Adapts score modifications and biases to `gone` evicted keys after the sink tokens. Shapes that an encoding made for
// all keys lose the evicted ones. Shapes by distance still use the true distances to sink tokens.
void drop_evicted(Score& score, const AttentionInput& in, std::int64_t gone);

// Evicts keys that no later query attends to, with everything stored next to them, several at a time. keys: the current
// number of keys. With sink tokens and a score modification that reads distances no key is evicted.
void evict_masked(const Score& score, const AttentionInput& in, std::int64_t keys);

}  // namespace tally
