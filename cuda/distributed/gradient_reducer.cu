// All-reduce over GPUs (core/distributed/gradient_reducer.hpp): one GPU per rank, NCCL between them, on a second stream
// next to the kernels' stream. The order of NCCL's own sums would depend on the number of ranks, so NCCL only
// transports parts of buckets, and kernels here add them.
#include "cuda/distributed/gradient_reducer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "core/error.hpp"
#include "cuda/distributed/nccl.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

#if TALLY_WITH_NCCL

void check_call(ncclResult_t result, const char* call, const char* file, int line) {
  if (result != ncclSuccess) {
    fail("nccl", "{} failed: {} ({}:{})", call, ncclGetErrorString(result), file, line);
  }
}

namespace {

// own [n] = the sum of the terms in tree order, one term per rank: `own` itself is the term of rank `rank`, the others
// are rows [n] of `terms`.
template <class T>
__global__ void add_in_tree(T* own, const T* terms, std::int64_t n, int count, int rank) {
  const std::int64_t stride = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    // Each 1 in the binary digits of the number of terms so far corresponds to one partial sum.
    T sums[32];
    int held = 0;
    for (int term = 0; term < count; ++term) {
      T sum = term == rank ? own[i] : terms[term * n + i];
      for (int digits = term; (digits & 1) != 0; digits >>= 1) sum = sums[--held] + sum;
      sums[held++] = sum;
    }
    T sum = sums[--held];
    while (held > 0) sum = sums[--held] + sum;
    own[i] = sum;
  }
}

class NcclReducer final : public GradientReducer {
 public:
  explicit NcclReducer(const ProcessGroup& ranks) : ranks_(ranks), kernels_(context().stream) {
    ncclUniqueId id;  // created by the first rank, sent to all
    std::vector<std::byte> shared(sizeof id);
    if (ranks.first()) {
      NCCL_CHECK(ncclGetUniqueId(&id));
      std::memcpy(shared.data(), &id, sizeof id);
    }
    std::vector<std::size_t> begins(static_cast<std::size_t>(ranks.size()) + 1, sizeof id);
    begins.front() = 0;
    ranks.all_gather(shared, begins);
    std::memcpy(&id, shared.data(), sizeof id);
    NCCL_CHECK(ncclCommInitRank(&communicator_, static_cast<int>(ranks.size()), id, static_cast<int>(ranks.rank())));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
  }

  // After an error the communicator is not destroyed: all ranks would have to take part, and they are about to be
  // ended. Any other failure here was caused by an earlier one, which is already reported.
  ~NcclReducer() override {
    if (std::uncaught_exceptions() > errors_) return;
    cudaStreamSynchronize(stream_);
    ncclCommDestroy(communicator_);
    cudaEventDestroy(ready_);
    cudaStreamDestroy(stream_);
  }

  void begin(const Tensor& bucket, std::int64_t terms) override {
    if (bucket.dtype() == DType::f64) {
      begin_as<double>(bucket, terms, ncclFloat64);
    } else {
      begin_as<float>(bucket, terms, ncclFloat32);
    }
  }

  // A stream makes progress without calls.
  void advance() override {}

  void finish() override {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    kept_.clear();
  }

  void all_gather(const Tensor& all, const std::vector<std::int64_t>& begins) override {
    after_kernels();
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(all.dtype()));
    auto* const data = static_cast<char*>(all.view().data);
    gather(data, begins, bytes, ncclInt8);
    finish();
  }

 private:
  // Later work of the exchange's stream follows all work that was put into the kernels' stream so far.
  void after_kernels() {
    CUDA_CHECK(cudaEventRecord(ready_, kernels_));
    CUDA_CHECK(cudaStreamWaitEvent(stream_, ready_, 0));
  }

  // Sends each part, with elements of `size` numbers of the type, to all other ranks.
  template <class T>
  void gather(T* data, const std::vector<std::int64_t>& begins, std::int64_t size, ncclDataType_t type) {
    const auto first = [&](int rank) { return begins[static_cast<std::size_t>(rank)] * size; };
    const auto count = [&](int rank) { return static_cast<std::size_t>(first(rank + 1) - first(rank)); };
    const int own = static_cast<int>(ranks_.rank()), ranks = static_cast<int>(ranks_.size());
    NCCL_CHECK(ncclGroupStart());
    for (int r = 0; r < ranks; ++r) {
      if (r == own) continue;
      if (count(own) > 0) NCCL_CHECK(ncclSend(data + first(own), count(own), type, r, communicator_, stream_));
      if (count(r) > 0) NCCL_CHECK(ncclRecv(data + first(r), count(r), type, r, communicator_, stream_));
    }
    NCCL_CHECK(ncclGroupEnd());
  }

  // A receive buffer for this number of elements. Buckets follow one another on the stream, so all share the buffer.
  View received(std::int64_t elements, const Tensor& bucket) {
    if (!received_.defined() || received_.numel() < elements) {
      if (received_.defined()) kept_.push_back(received_);
      received_ = Tensor::empty({elements}, bucket.dtype(), bucket.device());
    }
    return received_.view();
  }

  template <class T>
  void begin_as(const Tensor& bucket, std::int64_t terms, ncclDataType_t type) {
    kept_.push_back(bucket);
    const std::vector<std::int64_t> begins = parts_of(bucket.numel(), ranks_.size());
    T* const data = bucket.view().as<T>();
    const auto first = [&](int rank) { return begins[static_cast<std::size_t>(rank)]; };
    const auto count = [&](int rank) { return static_cast<std::size_t>(first(rank + 1) - first(rank)); };
    const int own = static_cast<int>(ranks_.rank()), ranks = static_cast<int>(ranks_.size());
    const std::int64_t n = first(own + 1) - first(own);
    T* const found = received(terms * n, bucket).as<T>();
    after_kernels();
    NCCL_CHECK(ncclGroupStart());
    for (int r = 0; r < ranks; ++r) {
      if (r == own) continue;
      if (own < terms && count(r) > 0) NCCL_CHECK(ncclSend(data + first(r), count(r), type, r, communicator_, stream_));
      if (r < terms && n > 0) {
        NCCL_CHECK(ncclRecv(found + r * n, count(own), type, r, communicator_, stream_));
      }
    }
    NCCL_CHECK(ncclGroupEnd());
    if (n > 0) {
      constexpr unsigned threads = 256;
      launch(add_in_tree<T>, blocks_for(n, threads), threads, 0, stream_, data + first(own),
             static_cast<const T*>(found), n, static_cast<int>(terms), own);
    }
    gather(data, begins, 1, type);
  }

  const ProcessGroup& ranks_;
  cudaStream_t kernels_;
  ncclComm_t communicator_{};
  cudaStream_t stream_{};
  cudaEvent_t ready_{};
  std::vector<Tensor> kept_;  // buckets in flight
  Tensor received_;
  int errors_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<GradientReducer> make_gradient_reducer(const ProcessGroup& ranks) {
  return std::make_unique<NcclReducer>(ranks);
}

#else

std::unique_ptr<GradientReducer> make_gradient_reducer(const ProcessGroup&) {
  fail("nccl",
       "this build of tally has no NCCL, by which the ranks of a run on GPUs exchange gradients: nccl.h was not found "
       "beside the CUDA toolkit (libnccl-dev) or in the Python index's folder (nvidia-nccl-cu12)");
}

#endif

}  // namespace tally::TALLY_CUDA_NAMESPACE
