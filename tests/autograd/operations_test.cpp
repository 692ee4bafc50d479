// Tests of every operation of the table (op_cases.hpp) that do not depend on its formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "autograd/gradcheck.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "cuda/emulator/settings.hpp"
#include "tests/autograd/counted_kernels.hpp"
#include "tests/autograd/op_cases.hpp"
#include "tests/devices.hpp"

namespace tally::testing::operations_test {

// The elements in memory order, so that equal means equal bits (also for NaN and -0).
std::string bits_of(const Tensor& x) {
  const Tensor dense = x.to_dense().to(Device{});
  return {static_cast<const char*>(dense.view().data), x.bytes()};
}

void expect_close(const Tensor& y, const Array& expected, double epsilons) {
  ASSERT_EQ(to_text(y.shape()), to_text(expected.shape));
  const double epsilon = y.dtype() == DType::f32   ? std::numeric_limits<float>::epsilon()
                         : y.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                   : 0;
  const Array found = to_array(y);
  double largest = 0;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  double worst = 0;
  for (std::size_t n = 0; n < found.values.size(); ++n) {
    const double error = std::abs(found.values[n] - expected.values[n]);
    if (!(error <= worst)) worst = error;  // NaN too
  }
  EXPECT_LE(worst, epsilons * epsilon * largest) << "largest magnitude " << largest;
}

// Random weights for the elements of y: the gradient that comes from a loss.
Tensor make_d_y(const Tensor& y) {
  const OpCase weights{
      .name = "weights", .kernels = {}, .operands = {{}}, .shapes = {}, .large = {}, .run = {}, .reference = {}};
  return make_operand(weights, 0, y.shape(), y.dtype(), y.device());
}

struct Evaluation {
  Tensor y;
  std::vector<Tensor> gradients;  // undefined for operands that take none
};

// Which operands take gradients: all that can, or only one.
constexpr std::size_t all_operands = std::numeric_limits<std::size_t>::max();

// Makes the operand that an operation gets instead of a leaf.
using MakeView = std::function<Tensor(const Tensor& leaf)>;

// Requests the gradients of the operands that have one, and returns whether there are any.
bool take_gradients(const OpCase& op, std::vector<Tensor>& leaves, std::size_t only = all_operands) {
  bool any = false;
  for (std::size_t i = 0; i < leaves.size() && op.differentiable; ++i) {
    if (!op.operands[i].takes_gradient() || (only != all_operands && only != i)) continue;
    set_requires_grad(leaves[i]);
    any = true;
  }
  return any;
}

Evaluation evaluate(const OpCase& op, std::vector<Tensor> leaves, const Tensor& d_y, std::size_t only = all_operands,
                    const MakeView& view = {}) {
  take_gradients(op, leaves, only);
  std::vector<Tensor> operands;
  for (const Tensor& leaf : leaves) operands.push_back(view ? view(leaf) : leaf);
  Evaluation result;
  result.y = op.run(operands);
  if (requires_grad(result.y)) backward(result.y, d_y.defined() ? d_y : make_d_y(result.y));
  for (const Tensor& leaf : leaves) result.gradients.push_back(requires_grad(leaf) ? gradient(leaf) : Tensor());
  return result;
}

Evaluation evaluate(const OpCase& op, const Shapes& shapes, DType dtype, Device device) {
  return evaluate(op, make_operands(op, shapes, dtype, device), {});
}

void expect_same_bits(const Evaluation& a, const Evaluation& b, const std::string& what) {
  EXPECT_EQ(bits_of(a.y), bits_of(b.y)) << what << ": value";
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    if (!b.gradients[i].defined()) continue;
    EXPECT_EQ(bits_of(a.gradients[i]), bits_of(b.gradients[i])) << what << ": gradient of operand " << i;
  }
}

// Sums may be taken in another order for another layout; everything else must agree to the last bit or nearly so.
void expect_nearly_equal(const Evaluation& a, const Evaluation& b, const OpCase& op, const std::string& what) {
  SCOPED_TRACE(what);
  expect_close(a.y, to_array(b.y), op.tolerance);
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined());
    SCOPED_TRACE(formatted("gradient of operand {}", i));
    if (a.gradients[i].defined()) expect_close(a.gradients[i], to_array(b.gradients[i]), 4 * op.tolerance);
  }
}

// The same elements with the axes in reverse order; twice is the tensor itself.
Tensor reversed_axes(const Tensor& x) {
  Shape shape;
  Strides strides;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    strides[shape.rank] = x.strides()[axis];
    shape.append(x.shape()[axis]);
  }
  return x.detached_strided(shape, strides, x.offset());
}

// The same, recorded.
Tensor reverse_axes(const Tensor& x) {
  Tensor y = x;
  for (int axis = 0; axis < x.rank() / 2; ++axis) y = transpose(y, axis, x.rank() - 1 - axis);
  return y;
}

using DeviceAndCase = std::tuple<Device, std::size_t>;  // the case by its index in op_cases()

class Operation : public ::testing::TestWithParam<DeviceAndCase> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  const OpCase& op() const { return op_cases()[std::get<1>(GetParam())]; }
  bool has_elements(const Shapes& shapes) const {
    return std::all_of(shapes.begin(), shapes.end(), [](const Shape& shape) { return shape.numel() > 0; });
  }
};

TEST_P(Operation, EqualsThePlainReference) {
  std::vector<Shapes> all = op().shapes;
  if (!only_small_kernels(device())) all.push_back(op().large);
  for (const Shapes& shapes : all) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(formatted("{} {}", dtype, shapes[0]));
      const std::vector<Tensor> operands = make_operands(op(), shapes, dtype, device());
      std::vector<Array> arrays;
      for (const Tensor& operand : operands) arrays.push_back(to_array(operand));
      expect_close(op().run(operands), op().reference(arrays), op().tolerance);
    }
  }
}

// An operation without a derivative is constant or refuses operands that take gradients.
void expect_constant_or_refused(const OpCase& op, Device device) {
  std::vector<Tensor> operands = make_operands(op, op.shapes[0], DType::f64, device);
  for (Tensor& operand : operands) {
    if (is_floating(operand.dtype())) set_requires_grad(operand);
  }
  try {
    EXPECT_FALSE(requires_grad(op.run(operands)));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no derivative"), std::string::npos) << error.what();
  }
}

TEST_P(Operation, DerivativeEqualsCentralDifferences) {
  if (only_small_kernels(device()) || (device() != Device{} && repeats_show_nothing())) GTEST_SKIP() << "sanitizers";
  if (!op().differentiable) return expect_constant_or_refused(op(), device());
  std::vector<Shapes> all = op().shapes;
  if (!takes_a_share(device())) all.push_back(op().large);
  for (const Shapes& shapes : all) {
    // Operands that take no gradient are no inputs of the function that is checked.
    const std::vector<Tensor> operands = make_operands(op(), shapes, DType::f64, device());
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (op().operands[i].takes_gradient()) inputs.push_back(operands[i]);
    }
    const auto function = [&](const std::vector<Tensor>& x) {
      std::vector<Tensor> arguments = operands;
      std::size_t next = 0;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (op().operands[i].takes_gradient()) arguments[i] = x[next++];
      }
      return op().run(arguments);
    };
    const GradcheckResult result = gradcheck(function, inputs);
    EXPECT_TRUE(result.ok) << shapes[0].numel() << " elements: " << result.text;
    EXPECT_TRUE(result.full || shapes == op().large);
    const bool has_gradients = has_elements(shapes) && op().run(operands).numel() > 0;
    EXPECT_TRUE(result.compared > 0 || !has_gradients);
  }
}

TEST_P(Operation, GradientsDoNotDependOnWhoElseTakesOne) {
  const std::vector<Tensor> operands = make_operands(op(), op().shapes[0], DType::f64, device());
  const Evaluation together = evaluate(op(), operands, {});
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!op().differentiable || !op().operands[i].takes_gradient()) continue;
    std::vector<Tensor> fresh;
    for (const Tensor& operand : operands) fresh.push_back(operand.clone());
    const Evaluation alone = evaluate(op(), fresh, {}, i);
    ASSERT_TRUE(alone.gradients[i].defined());
    expect_same_bits(together, alone, formatted("operand {} alone", i));
  }
}

TEST_P(Operation, AcceptsAnyStrides) {
  std::vector<Shapes> all{op().shapes[0]};
  if (!only_small_kernels(device()) && !takes_a_share(device())) all.push_back(op().large);
  for (const Shapes& shapes : all) {
    const std::vector<Tensor> operands = make_operands(op(), shapes, DType::f64, device());
    const auto leaves_of = [&](const std::function<Tensor(const Tensor&)>& leaf_of) {
      std::vector<Tensor> leaves;
      for (const Tensor& operand : operands) leaves.push_back(leaf_of(operand));
      return leaves;
    };
    const Evaluation dense = evaluate(op(), leaves_of([](const Tensor& x) { return x.clone(); }), {});

    // Axes in reverse order in memory. The gradients come back in that order too.
    Evaluation turned = evaluate(op(), leaves_of([](const Tensor& x) { return reversed_axes(x).clone(); }), {},
                                 all_operands, reverse_axes);
    for (Tensor& d_x : turned.gradients) {
      if (d_x.defined()) d_x = reversed_axes(d_x);
    }
    expect_nearly_equal(turned, dense, op(), "axes reversed");

    // A part of a wider tensor: rows further apart than they are long, not at the storage's begin.
    const auto widened = [](const Tensor& x) {
      if (x.rank() == 0) return x.clone();
      Shape wide = x.shape();
      wide[x.rank() - 1] += 3;
      const Tensor y = Tensor::full(wide, 1, x.dtype(), x.device());
      y.detached_slice(-1, 2, wide.back() - 1).copy_from(x);
      return y;
    };
    const auto inner = [](const Tensor& x) { return x.rank() == 0 ? x : slice(x, -1, 2, x.size(-1) - 1); };
    Evaluation sliced = evaluate(op(), leaves_of(widened), {}, all_operands, inner);
    for (Tensor& d_x : sliced.gradients) {
      if (d_x.defined()) d_x = inner(d_x);
    }
    expect_nearly_equal(sliced, dense, op(), "sliced");

    // Rows that repeat: stride 0 against the same elements written out.
    const auto first = [](const Tensor& x) {
      return x.rank() == 0 || x.size(0) == 0 ? x.clone() : x.detached_slice(0, 0, 1).clone();
    };
    const auto repeated_operands = [&](bool materialised) {
      std::vector<Tensor> repeated;
      for (const Tensor& operand : operands) {
        const Tensor view = first(operand).detached_broadcast("test", operand.shape());
        repeated.push_back(materialised ? view.clone() : view);
      }
      return repeated;
    };
    expect_nearly_equal(evaluate(op(), repeated_operands(false), {}), evaluate(op(), repeated_operands(true), {}), op(),
                        "rows repeated");

    // The gradient that arrives, with reversed axes and with stride 0 everywhere.
    if (!op().differentiable) continue;
    const auto fresh = [&] { return leaves_of([](const Tensor& x) { return x.clone(); }); };
    const Tensor turned_d_y = reversed_axes(reversed_axes(make_d_y(dense.y)).clone());
    expect_nearly_equal(evaluate(op(), fresh(), turned_d_y), dense, op(), "d_y with axes reversed");
    const Tensor one =
        Tensor::scalar(0.5, dense.y.dtype(), dense.y.device()).detached_broadcast("test", dense.y.shape());
    expect_nearly_equal(evaluate(op(), fresh(), one), evaluate(op(), fresh(), one.clone()), op(), "d_y with stride 0");
  }
}

TEST_P(Operation, SameBitsForAnyNumberOfThreads) {
  if (only_small_kernels(device())) GTEST_SKIP() << "under ThreadSanitizer";
  if (device() != Device{} && repeats_show_nothing()) GTEST_SKIP() << "under AddressSanitizer";
  const int before = thread_count();
  for (const DType dtype : {DType::f32, DType::f64}) {
    if (takes_a_share(device()) && dtype == DType::f64) continue;  // the same kernels in another type
    set_thread_count(1);
    const Evaluation one = evaluate(op(), op().large, dtype, device());
    for (const int threads : {2, 3}) {
      set_thread_count(threads);
      expect_same_bits(one, evaluate(op(), op().large, dtype, device()), formatted("{} threads, {}", threads, dtype));
    }
  }
  set_thread_count(before);
}

// A kernel that lacks a barrier, or reads another block's output, would depend on the order of threads. It must also
// not use work that was not waited for, or touch device memory from outside.
TEST_P(Operation, SameBitsForAnySchedule) {
  if (device().type != DeviceType::cuda_host) GTEST_SKIP() << "schedules are those of cuda-host";
  if (only_small_kernels(device())) GTEST_SKIP() << "under ThreadSanitizer";
  using cuda_host::Schedule;
  const cuda_host::Settings before = cuda_host::settings();
  const Evaluation large = evaluate(op(), op().large, DType::f32, device());
  for (const Schedule schedule : {Schedule::reverse, Schedule::random}) {
    if (repeats_show_nothing()) continue;
    cuda_host::set_settings({.schedule = schedule, .seed = 3});
    expect_same_bits(large, evaluate(op(), op().large, DType::f32, device()), "another schedule");
  }
  cuda_host::set_settings({.delay_streams = true, .protect_memory = true});
  expect_same_bits(large, evaluate(op(), op().large, DType::f32, device()), "delayed streams");
  cuda_host::set_settings(before);
}

TEST_P(Operation, LeavesNothingBehind) {
  const std::int64_t nodes = live_nodes();
  const std::uint64_t blocks = memory_counters(device()).live_blocks;
  for (const Shapes& shapes : op().shapes) {
    evaluate(op(), shapes, DType::f64, device());
    {
      // A graph that is dropped without a backward pass.
      std::vector<Tensor> operands = make_operands(op(), shapes, DType::f64, device());
      take_gradients(op(), operands);
      const Tensor y = op().run(operands);
      const bool recorded = y.autograd() != nullptr && y.autograd()->producer != nullptr;
      EXPECT_EQ(recorded, live_nodes() > nodes);
    }
    EXPECT_EQ(live_nodes(), nodes);
    EXPECT_EQ(memory_counters(device()).live_blocks, blocks);
  }
}

// An operand, or the result, changes between forward and backward: either backward does not need it, or it refuses.
TEST_P(Operation, NeverUsesAChangedValue) {
  const std::vector<Tensor> operands = make_operands(op(), op().shapes[0], DType::f64, device());
  const Evaluation unchanged = evaluate(op(), operands, {});
  for (std::size_t changed = 0; changed <= operands.size(); ++changed) {
    std::vector<Tensor> leaves;
    for (const Tensor& operand : operands) leaves.push_back(operand.clone());
    take_gradients(op(), leaves);
    const Tensor y = op().run(leaves);
    if (!requires_grad(y)) return;
    // The whole storage: several elements of a broadcast result share an address, to which several threads would write.
    Tensor all = (changed < leaves.size() ? leaves[changed] : y).detach();
    for (int axis = 0; axis < all.rank(); ++axis) {
      if (all.strides()[axis] == 0 && all.size(axis) > 1) all = all.detached_slice(axis, 0, 1);
    }
    all.fill(0);
    try {
      backward(y, make_d_y(y));
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        if (!requires_grad(leaves[i])) continue;
        EXPECT_EQ(bits_of(gradient(leaves[i])), bits_of(unchanged.gradients[i])) << "operand " << i;
      }
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("changed in place"), std::string::npos) << error.what();
    }
  }
}

TEST_P(Operation, RecordsOnlyWhenAskedTo) {
  std::vector<Tensor> operands = make_operands(op(), op().shapes[0], DType::f32, device());
  EXPECT_FALSE(requires_grad(op().run(operands)));
  const std::string bits = bits_of(op().run(operands));
  const std::int64_t nodes = live_nodes();
  const bool differentiable = take_gradients(op(), operands);
  {
    const NoGrad no_grad;
    const Tensor y = op().run(operands);
    EXPECT_FALSE(requires_grad(y));
    EXPECT_EQ(bits_of(y), bits);
    EXPECT_EQ(live_nodes(), nodes);
  }
  const Tensor y = op().run(operands);
  EXPECT_EQ(requires_grad(y), differentiable);
  EXPECT_EQ(bits_of(y), bits);
}

TEST_P(Operation, CallsTheKernelsItNames) {
  std::vector<std::uint64_t> before;
  for (const std::string& kernel : op().kernels) before.push_back(kernel_calls(kernel));
  evaluate(op(), op().shapes[0], DType::f32, device());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_GT(kernel_calls(op().kernels[i]), before[i]) << op().kernels[i];
}

auto all_cases_on(const std::vector<Device>& devices) {
  return ::testing::Combine(::testing::ValuesIn(devices), ::testing::Range<std::size_t>(0, op_cases().size()));
}

std::string name_of_case(const ::testing::TestParamInfo<DeviceAndCase>& test) {
  return op_cases()[std::get<1>(test.param)].name;
}

INSTANTIATE_TEST_SUITE_P(Cpu, Operation, all_cases_on({Device{}}), name_of_case);
INSTANTIATE_TEST_SUITE_P(CudaHost, Operation, all_cases_on({on_cuda_host}), name_of_case);
INSTANTIATE_TEST_SUITE_P(Cuda, Operation, all_cases_on(cuda_devices()), name_of_case);

// A kernel without a row in the table would go untested. CallsTheKernelsItNames checks that the rows are true.
TEST(Coverage, EveryKernelHasACase) {
  std::set<std::string> covered;
  for (const OpCase& op : op_cases()) covered.insert(op.kernels.begin(), op.kernels.end());
  for (const std::string& kernel : kernel_names()) {
    EXPECT_TRUE(covered.contains(kernel) || kernel.ends_with("_workspace"))
        << kernel;  // that is asked before each call
  }
}

TEST(Coverage, NamesAreUnique) {
  std::set<std::string> names;
  for (const OpCase& op : op_cases()) EXPECT_TRUE(names.insert(op.name).second) << op.name;
}

}  // namespace tally::testing::operations_test
