#include "nn/attention/kv_cache.hpp"

namespace tally {

void CacheEntry::append(const Tensor& rows, int axis) {
  if (!tensor_.defined()) {
    tensor_ = rows;
    return;
  }
  const std::int64_t before = tensor_.size(axis), count = before + rows.size(axis);
  const bool fits = room_ != nullptr && room_->filled == before && count <= room_->memory.size(axis);
  if (!fits) {
    // An eighth of spare room: on average a token then copies eight earlier ones.
    Shape shape = tensor_.shape();
    shape[axis] = count + count / 8 + 16;
    room_ = std::make_shared<Room>(Room{Tensor::empty(shape, tensor_.dtype(), tensor_.device()), 0});
    room_->memory.detached_slice(axis, 0, before).copy_from(tensor_);
  }
  room_->memory.detached_slice(axis, before, count).copy_from(rows);
  room_->filled = count;
  tensor_ = room_->memory.detached_slice(axis, 0, count);
}

}  // namespace tally
