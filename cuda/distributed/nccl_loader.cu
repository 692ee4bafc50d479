// NCCL, loaded by its first call, like cuBLAS (cuda/runtime/cublas_loader.cu): a program that uses one GPU starts
// without it. Defines those functions of nccl.h that tally calls; each forwards its arguments.
#if defined(__CUDACC__) && TALLY_WITH_NCCL
#include <dlfcn.h>
#include <nccl.h>

#include <string>

#include "core/error.hpp"

namespace {

void* load() {
  std::string tried;
  for (const char* path : {TALLY_NCCL_PATH, "libnccl.so.2"}) {
    if (void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    tried += tally::formatted("\n  {}", dlerror());
  }
  tally::fail("nccl",
              "NCCL cannot be loaded, by which the ranks of a run on GPUs exchange gradients (libnccl2, or of the "
              "Python index nvidia-nccl-cu12):{}",
              tried);
}

void* symbol(const char* name) {
  static void* const library = load();
  void* const found = dlsym(library, name);
  tally::check(found != nullptr, "nccl", "NCCL has no function {}: {}", name, dlerror());
  return found;
}

template <class... Arguments>
ncclResult_t call(void* function, Arguments... arguments) {
  return reinterpret_cast<ncclResult_t (*)(Arguments...)>(function)(arguments...);
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  static void* const function = symbol("ncclGetErrorString");
  return reinterpret_cast<const char* (*)(ncclResult_t)>(function)(result);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static void* const function = symbol("ncclGetUniqueId");
  return call(function, id);
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  static void* const function = symbol("ncclCommInitRank");
  return call(function, communicator, ranks, id, rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  static void* const function = symbol("ncclCommDestroy");
  return call(function, communicator);
}

ncclResult_t ncclGroupStart() {
  static void* const function = symbol("ncclGroupStart");
  return call(function);
}

ncclResult_t ncclGroupEnd() {
  static void* const function = symbol("ncclGroupEnd");
  return call(function);
}

ncclResult_t ncclSend(const void* source, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  static void* const function = symbol("ncclSend");
  return call(function, source, count, type, peer, communicator, stream);
}

ncclResult_t ncclRecv(void* target, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  static void* const function = symbol("ncclRecv");
  return call(function, target, count, type, peer, communicator, stream);
}

}  // extern "C"
#endif
