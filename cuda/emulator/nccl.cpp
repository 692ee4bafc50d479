#include "cuda/emulator/nccl.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/distributed/process_group.hpp"
#include "cuda/emulator/memory.hpp"
#include "cuda/emulator/stream.hpp"

namespace tally::cuda_host {

struct NcclCommunicator {
  ncclUniqueId id;
  cudaStream_t stream = nullptr;  // the first stream it was used with
};

namespace {

struct Transfer {
  std::byte* data;
  std::size_t bytes;
  int peer;
  bool sends;
};

struct Group {
  int depth = 0;
  ncclComm_t communicator = nullptr;
  std::vector<Transfer> transfers;
};
thread_local Group group;

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return 1;
    case ncclFloat32: return 4;
    case ncclFloat64: return 8;
  }
  return 0;
}

bool is_stream(cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  return s.known(stream);
}

void run(const std::vector<Transfer>& transfers) {
  constexpr int tag = (1 << 15) + 1;  // reserved for NCCL: messages between two ranks keep their order
  const DeviceAccess access;
  Messages messages(ProcessGroup::world());
  for (const Transfer& transfer : transfers) {
    const std::span<std::byte> bytes(transfer.data, transfer.bytes);
    if (transfer.sends) {
      messages.send(bytes, transfer.peer, tag);
    } else {
      messages.receive(bytes, transfer.peer, tag);
    }
  }
  messages.wait();
}

ncclResult_t add(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                 cudaStream_t stream, bool sends) {
  if (communicator == nullptr || bytes_of(type) == 0 || peer < 0 || peer >= ProcessGroup::world().size()) {
    return ncclInvalidArgument;
  }
  if (!is_stream(stream) || (count > 0 && !in_device_memory(data, count * bytes_of(type)))) return ncclInvalidArgument;
  // A message to the same rank would wait for its other end, and streams of one communicator for each other.
  if (peer == ProcessGroup::world().rank()) return ncclInvalidUsage;
  if (communicator->stream != nullptr && communicator->stream != stream) return ncclInvalidUsage;
  if (group.communicator != nullptr && group.communicator != communicator) return ncclInvalidUsage;
  communicator->stream = stream;
  group.communicator = communicator;
  group.transfers.push_back({static_cast<std::byte*>(data), count * bytes_of(type), peer, sends});
  if (group.depth > 0) return ncclSuccess;
  ncclGroupStart();  // a group with one call
  return ncclGroupEnd();
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  }
  return "unknown result code";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  std::random_device random;
  std::ranges::generate(id->internal, [&random] { return static_cast<char>(random()); });
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  if (communicator == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  const ProcessGroup& world = ProcessGroup::world();
  if (ranks != world.size() || rank != world.rank()) return ncclInvalidUsage;
  // All ranks call this, with the id from one of them.
  std::vector<ncclUniqueId> ids(static_cast<std::size_t>(ranks));
  std::vector<std::size_t> begins;
  for (int r = 0; r <= ranks; ++r) begins.push_back(static_cast<std::size_t>(r) * sizeof id);
  ids[static_cast<std::size_t>(rank)] = id;
  world.all_gather(std::as_writable_bytes(std::span(ids)), begins);
  for (const ncclUniqueId& other : ids) {
    if (std::memcmp(&other, &id, sizeof id) != 0) return ncclInvalidUsage;
  }
  *communicator = new NcclCommunicator{id};
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (communicator == nullptr) return ncclInvalidArgument;
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  const ncclComm_t communicator = std::exchange(group.communicator, nullptr);
  std::vector<Transfer> transfers = std::exchange(group.transfers, {});
  if (transfers.empty()) return ncclSuccess;
  detail::enqueue(communicator->stream, [transfers = std::move(transfers)] { run(transfers); });
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(const_cast<void*>(source), count, type, peer, communicator, stream, true);
}

ncclResult_t ncclRecv(void* target, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(target, count, type, peer, communicator, stream, false);
}

}  // namespace tally::cuda_host
