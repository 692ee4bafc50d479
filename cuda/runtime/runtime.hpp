// CUDA for the .cu files of this folder. nvcc compiles them against CUDA itself into tally::cuda; any C++ compiler
// compiles the same files against host/, which executes them on the CPU, into tally::cuda_host.
#pragma once

#if defined(__CUDACC__)
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#define TALLY_CUDA_NAMESPACE cuda
#else
#include "cuda/emulator/cublas.hpp"
#include "cuda/emulator/language.hpp"
#include "cuda/emulator/runtime_api.hpp"
#include "cuda/emulator/tensor_cores.hpp"
#define TALLY_CUDA_NAMESPACE cuda_host
#endif
