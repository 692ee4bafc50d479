// The public interface of the library in one header: tensors, operations with derivatives, modules, optimisers,
// position encodings, and modules in files.
#pragma once

#include "autograd/gradcheck.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/device.hpp"
#include "core/error.hpp"
#include "core/tensor.hpp"
#include "nn/containers.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/lstm.hpp"
#include "nn/layers/mlp.hpp"
#include "nn/layers/norm.hpp"
#include "nn/module.hpp"
#include "nn/optimizer.hpp"
#include "nn/transformer.hpp"
#include "tasks/library/module_file.hpp"
