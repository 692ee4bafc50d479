// The calls of NCCL that the backend uses, over the messages of core/ranks.hpp, with checks of their arguments: what
// NCCL refuses, and what it would take for granted, as that memory lies on the device.
#pragma once

#include <cstddef>

#include "cuda/host/runtime_api.hpp"

namespace tally::cuda_host {

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5
};
const char* ncclGetErrorString(ncclResult_t result);

enum ncclDataType_t : int { ncclInt8 = 0, ncclFloat32 = 7, ncclFloat64 = 8 };

struct ncclUniqueId {
  char internal[128];
};
struct NcclCommunicator;
using ncclComm_t = NcclCommunicator*;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
// The ranks must be those of core/ranks.hpp: ncclInvalidUsage otherwise, and for an id of another communicator.
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);

// What is sent and received between the two goes on together, in one turn of the stream.
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
// To and from another rank, which receives and sends as many elements of that type: ncclInvalidArgument where memory is
// not the device's, there is no such rank, type or stream. A communicator keeps to one stream here.
ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* target, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);

}  // namespace tally::cuda_host
