#include "core/storage.hpp"

#include "core/device/backend.hpp"

namespace tally {

std::shared_ptr<Storage> Storage::allocate(std::size_t bytes, Device device) {
  const Backend& own = backend(device);
  auto* data = static_cast<std::byte*>(own.allocate(bytes));
  return std::shared_ptr<Storage>(new Storage(data, bytes, device, own.release));
}

Storage::~Storage() { release_(data_, bytes_, device_.index); }

}  // namespace tally
