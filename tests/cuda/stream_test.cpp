// Streams, events, graphs, copies and cuBLAS of the emulator: they guarantee only what CUDA guarantees.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <set>
#include <thread>

#include "core/device/backend.hpp"
#include "core/device/graph.hpp"
#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

__global__ void set_kernel(float* y, float value) { y[0] = value; }
__global__ void add_kernel(float* y, const float* x) { y[0] += x[0]; }

class Streams : public ::testing::Test {
 protected:
  void SetUp() override {
    CUDA_CHECK(cudaStreamCreateWithFlags(&a_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaStreamCreateWithFlags(&b_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    y_ = Tensor::zeros({1}, DType::f32, device);
  }
  void TearDown() override {
    CUDA_CHECK(cudaStreamDestroy(a_));
    CUDA_CHECK(cudaStreamDestroy(b_));
    CUDA_CHECK(cudaEventDestroy(event_));
  }
  float* y() const { return y_.view().as<float>(); }

  // The values of y after both streams have done set_kernel, b after the event in a if it waits; over many tries.
  std::set<double> results(bool wait) {
    std::set<double> found;
    for (int n = 0; n < 60; ++n) {
      launch(set_kernel, 1, 1, 0, a_, y(), 1.0f);
      CUDA_CHECK(cudaEventRecord(event_, a_));
      if (wait) CUDA_CHECK(cudaStreamWaitEvent(b_, event_));
      launch(set_kernel, 1, 1, 0, b_, y(), 2.0f);
      CUDA_CHECK(cudaDeviceSynchronize());
      found.insert(y_.item());
    }
    return found;
  }

  static std::vector<cudaGraphNodeType> types_of(cudaGraph_t graph) {
    std::size_t count = 0;
    CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
    std::vector<cudaGraphNodeType> types(count);
    for (std::size_t n = 0; n < count; ++n) CUDA_CHECK(cudaGraphNodeGetType(nodes[n], &types[n]));
    return types;
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  cudaEvent_t event_ = nullptr;
  Tensor y_;
};

TEST_F(Streams, RunAtOnceByDefault) { EXPECT_EQ(results(false), std::set<double>{2}); }

TEST_F(Streams, DelayedHaveNoOrderBetweenThem) {
  const WithSettings with({.delay_streams = true});
  EXPECT_EQ(results(false), (std::set<double>{1, 2}));
}

TEST_F(Streams, DelayedWaitForEvents) {
  const WithSettings with({.delay_streams = true});
  EXPECT_EQ(results(true), std::set<double>{2});
}

TEST_F(Streams, DelayedCopiesComeLate) {
  const WithSettings with({.delay_streams = true});
  std::set<float> seen;
  for (int n = 0; n < 60; ++n) {
    float host = 0;
    launch(set_kernel, 1, 1, 0, a_, y(), 5.0f);
    CUDA_CHECK(cudaMemcpyAsync(&host, y(), sizeof host, cudaMemcpyDeviceToHost, a_));
    seen.insert(host);
    CUDA_CHECK(cudaStreamSynchronize(a_));
    EXPECT_EQ(host, 5);
  }
  EXPECT_EQ(seen, (std::set<float>{0, 5}));
}

TEST_F(Streams, DelayedWorkKeepsItsOrder) {
  const WithSettings with({.delay_streams = true});
  for (int n = 0; n < 100; ++n) launch(set_kernel, 1, 1, 0, a_, y(), static_cast<float>(n));
  CUDA_CHECK(cudaStreamSynchronize(a_));
  EXPECT_EQ(y_.item(), 99);
}

TEST_F(Streams, GraphsRunWhatWasCaptured) {
  for (const bool delay : {false, true}) {
    const WithSettings with({.delay_streams = delay});
    y_.fill(0);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    const Tensor scratch = Tensor::zeros({2}, DType::f32, device);
    auto* const x = scratch.view().as<float>();
    CUDA_CHECK(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal));
    CUDA_CHECK(cudaMemsetAsync(x, 0, sizeof(float), a_));
    launch(set_kernel, 1, 1, 0, a_, x + 1, 2.0f);
    CUDA_CHECK(cudaMemcpyAsync(x, x + 1, sizeof(float), cudaMemcpyDeviceToDevice, a_));
    detail::poison(x + 1, sizeof(float), a_);
    launch(add_kernel, 1, 1, 0, a_, y(), x);
    CUDA_CHECK(cudaStreamEndCapture(a_, &graph));
    EXPECT_EQ(types_of(graph), (std::vector{cudaGraphNodeTypeMemset, cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy,
                                            cudaGraphNodeTypeKernel}));
    EXPECT_EQ(y_.item(), 0);
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph));
    CUDA_CHECK(cudaGraphDestroy(graph));
    for (int n = 0; n < 5; ++n) CUDA_CHECK(cudaGraphLaunch(executable, a_));
    CUDA_CHECK(cudaStreamSynchronize(a_));
    EXPECT_EQ(y_.item(), 10);
    CUDA_CHECK(cudaGraphExecDestroy(executable));
  }
}

TEST_F(Streams, CopiesKnowTheirSides) {
  std::array<float, 4> host{};
  const auto copy = [&](void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t error = cudaMemcpyAsync(target, source, bytes, kind, a_);
    cudaGetLastError();
    return error;
  };
  EXPECT_EQ(copy(y(), host.data(), 4, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(host.data(), y(), 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(copy(y(), y(), 4, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(copy(y(), host.data(), 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host.data(), y(), 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(y(), host.data(), 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);  // y has 4 bytes
  EXPECT_EQ(cudaMemsetAsync(y() + 1, 0, 4, a_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(host.data(), a_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Streams, FailuresNameTheCall) {
  try {
    CUDA_CHECK(cudaMemsetAsync(nullptr, 0, 4, a_));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[cuda] cudaMemsetAsync(nullptr, 0, 4, a_) failed: invalid argument"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("stream_test.cpp:"), std::string::npos) << error.what();
  }
}

// c [2, 2] column-major = a b, in every way that cuBLAS would refuse.
TEST_F(Streams, ProductsCheckTheirArguments) {
  const Tensor a = Tensor::full({2, 3}, 2, DType::f32, device), b = Tensor::full({3, 2}, 3, DType::f32, device);
  const Tensor c = Tensor::empty({2, 2}, DType::f32, device);
  const cublasHandle_t blas = use_device(0).blas;
  const float one = 1, zero = 0;
  const auto multiply = [&](cublasOperation_t op_a, int m, int k, int ld_a, int ld_b, int ld_c, long long stride_c,
                            int count) {
    return cublasGemmStridedBatchedEx(blas, op_a, CUBLAS_OP_N, m, 2, k, &one, a.view().as<float>(), CUDA_R_32F, ld_a, 0,
                                      b.view().as<float>(), CUDA_R_32F, ld_b, 0, &zero, c.view().as<float>(),
                                      CUDA_R_32F, ld_c, stride_c, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(multiply(CUBLAS_OP_N, 2, 3, 2, 3, 2, 4, 1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.to_vector<float>(), std::vector<float>(4, 18.0f));
  EXPECT_EQ(multiply(CUBLAS_OP_T, 2, 3, 3, 3, 2, 4, 1), CUBLAS_STATUS_SUCCESS);
  for (const cublasStatus_t status :
       {multiply(static_cast<cublasOperation_t>(7), 2, 3, 2, 3, 2, 4, 1), multiply(CUBLAS_OP_N, -1, 3, 2, 3, 2, 4, 1),
        multiply(CUBLAS_OP_N, 2, 3, 1, 3, 2, 4, 1), multiply(CUBLAS_OP_T, 2, 3, 2, 3, 2, 4, 1),
        multiply(CUBLAS_OP_N, 2, 3, 2, 2, 2, 4, 1), multiply(CUBLAS_OP_N, 2, 3, 2, 3, 1, 4, 1),
        multiply(CUBLAS_OP_N, 2, 4, 2, 4, 2, 4, 1),     // a and b end before
        multiply(CUBLAS_OP_N, 2, 3, 2, 3, 2, 4, 2),     // no second c
        multiply(CUBLAS_OP_N, 1, 3, 2, 3, 1, 1, 2)}) {  // its columns are the columns of the other
    EXPECT_EQ(status, CUBLAS_STATUS_INVALID_VALUE);
  }
}

TEST_F(Streams, TensorsMoveBetweenDevices) {
  const std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 6};
  for (const bool delay : {false, true}) {
    const WithSettings with({.delay_streams = delay, .protect_memory = true});
    const Tensor host = Tensor::from(values, {2, 3});
    const Tensor there = host.to(device);
    EXPECT_EQ(there.device(), device);
    EXPECT_EQ(there.to_vector<std::int32_t>(), values);
    EXPECT_EQ(there.detached_transpose(0, 1).to(Device{}).to_vector<std::int32_t>(),
              (std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}));
    Tensor back = Tensor::zeros({2, 3}, DType::f32);
    back.copy_from(there);
    EXPECT_EQ(back.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    Tensor onto = Tensor::zeros({2, 2, 3}, DType::i32, device);
    onto.copy_from(host);
    EXPECT_EQ(onto.detached_slice(0, 1, 2).to_vector<std::int32_t>(), values);
    EXPECT_EQ(there.detached_select(0, 1).detached_select(0, 2).item(), 6);
    EXPECT_THROW(there.span<std::int32_t>(), Error);
  }
}

// A call that a GPU refuses during capture is refused here too, and ends the capture. So are allocations, which would
// be nodes of the graph.
TEST_F(Streams, CapturesAreLost) {
  float host = 0;
  void* block = nullptr;
  const std::vector<std::function<cudaError_t()>> mistakes{
      [&] { return cudaStreamSynchronize(a_); },
      [] { return cudaDeviceSynchronize(); },
      [&] { return cudaMallocAsync(&block, sizeof host, a_); },
      [&] { return cudaFreeAsync(y(), a_); },
      [&] { return cudaMemcpyAsync(y(), &host, sizeof host, cudaMemcpyHostToDevice, a_); },
      [&] { return cudaMemcpyAsync(&host, y(), sizeof host, cudaMemcpyDeviceToHost, a_); }};
  for (std::size_t n = 0; n < mistakes.size(); ++n) {
    cudaGraph_t graph{};
    ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(mistakes[n](), cudaErrorStreamCaptureUnsupported) << n;
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated) << n;
  }
  cudaGetLastError();
}

// A device with little memory: cached tensors make way for graphs, all graphs have the same memory, and tensors that
// fit nowhere else use it between two launches.
TEST_F(Streams, GraphsAndTensorsShareTheMemory) {
  constexpr std::int64_t mebibyte = 1 << 20;
  const auto tensor = [](std::int64_t count) { return Tensor::empty({count * mebibyte}, DType::boolean, device); };
  std::uint64_t used = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(nullptr, cudaMemPoolAttrUsedMemCurrent, &used));
  CUDA_CHECK(cudaMemPoolTrimTo(nullptr, 0));
  const WithSettings with({.memory_bytes = used + 10 * mebibyte});
  {
    tensor(8);
    const DeviceGraph graph = DeviceGraph::capture(device, [&] { tensor(6); });
    const DeviceGraph other = DeviceGraph::capture(device, [&] {
      tensor(5);
      tensor(6);
    });
    EXPECT_EQ(other.size().bytes, 6 * mebibyte);
    for (int n = 0; n < 2; ++n) {
      graph.launch();
      other.launch();
      EXPECT_GE(available_memory(device), 10 * mebibyte);
      tensor(4), tensor(6);  // at the same time
      EXPECT_GE(available_memory(device), 10 * mebibyte);
    }
    Tensor small = tensor(4), large = tensor(6);
    EXPECT_THROW(tensor(1), Error);
    EXPECT_THROW(graph.launch(), Error);
    small = {};
    EXPECT_THROW(graph.launch(), Error);
    large = {};
    graph.launch();
  }
  tensor(10);
}

// Times measure the work itself, however late it runs.
TEST_F(Streams, EventsTellWhenTheyWereReached) {
  const WithSettings with({.delay_streams = true});
  cudaEvent_t events[2], untimed{};
  for (cudaEvent_t& event : events) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  CUDA_CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventRecord(events[0], a_));
  detail::enqueue(a_, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  CUDA_CHECK(cudaEventRecord(events[1], a_));
  CUDA_CHECK(cudaEventRecord(untimed, a_));
  CUDA_CHECK(cudaStreamSynchronize(a_));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaSuccess);
  EXPECT_GE(milliseconds, 20);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], untimed), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  for (const cudaEvent_t event : {events[0], events[1], untimed}) CUDA_CHECK(cudaEventDestroy(event));
}

TEST_F(Streams, MemoryIsCounted) {
  const MemoryCounters before = memory_counters(device);
  const Tensor x = Tensor::empty({1000}, DType::f64, device);
  EXPECT_EQ(memory_counters(device).live_bytes, before.live_bytes + 8000);
  EXPECT_EQ(memory_counters(device).live_blocks, before.live_blocks + 1);
  EXPECT_GT(available_memory(device), 8000);
#if !TALLY_SANITIZED  // they end the program instead
  EXPECT_THROW(Tensor::empty({std::int64_t{1} << 55}, DType::f64, device), Error);
#endif
}

}  // namespace
}  // namespace tally::cuda_host
