// matmul of core/device/kernels.def by a given microkernel, which the tests of each call; null: OpenBLAS.
#pragma once

#include <cstdint>

#include "core/cpu/matmul/microkernel.hpp"
#include "core/device/op_kinds.hpp"

namespace tally::cpu {

void matmul_by(const Microkernel* kernel, View c, View a, View b, const Epilogue& epilogue, void* workspace);
std::int64_t matmul_workspace_by(const Microkernel* kernel, View c, const View& a);

}  // namespace tally::cpu
