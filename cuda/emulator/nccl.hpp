// The calls of NCCL that the backend uses, over the messages of core/distributed/process_group.hpp. They check the
// arguments that NCCL checks, and also its unchecked requirements, such as that memory is on the device.
#pragma once

#include <cstddef>

#include "cuda/emulator/runtime_api.hpp"

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
// The ranks must equal the process group of core/distributed/process_group.hpp: ncclInvalidUsage otherwise, and for an
// id of another communicator.
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);

// Sends and receives between the two run together, as one item of the stream.
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
// To and from another rank, which receives and sends the same number of elements of that type. ncclInvalidArgument if
// memory is not on the device, or the rank, type or stream does not exist. Here a communicator is bound to one stream.
ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* target, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);

}  // namespace tally::cuda_host
