// Time and memory rate of single kernels at the sizes of a training step (B = 16, H = 4, T = 512, D = 256). Bytes are
// those a kernel has to read and write at least: causal ones read the lower triangle and write the whole square.
//
//   kernels_bench [--device cpu|cuda] [part of a name]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/error.hpp"
#include "core/hyperparameters.hpp"
#include "core/matrix_layout.hpp"
#include "core/tensor.hpp"

namespace tally {
namespace {

Device device;
std::string wanted;

// A dense tensor of the device.
class Buffer {
 public:
  explicit Buffer(const Shape& shape, DType dtype = DType::f32) : Buffer(Tensor::zeros(shape, dtype, device)) {}
  explicit Buffer(Tensor tensor) : tensor_(std::move(tensor)), view(tensor_.view()) {}

  static Buffer random(const Shape& shape, double low, double high) {
    Buffer buffer(shape);
    kernels(device).random_uniform(buffer.view, {.seed = 1}, low, high);
    return buffer;
  }

 private:
  Tensor tensor_;

 public:
  View view;
};

// The best of seven times, each of a number of calls that takes about 2 ms: a GPU finishes most in less time than a
// launch takes.
void measure(const std::string& name, double megabytes, const std::function<void()>& run) {
  if (name.find(wanted) == std::string::npos) return;
  const auto seconds_of = [&](int calls) {
    using Clock = std::chrono::steady_clock;
    synchronize(device);
    const auto start = Clock::now();
    for (int n = 0; n < calls; ++n) run();
    synchronize(device);
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
  };
  seconds_of(1);
  const int calls = static_cast<int>(std::clamp(2e-3 / seconds_of(1), 1.0, 1000.0));
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 7; ++i) best = std::min(best, seconds_of(calls));
  std::printf("%-44s %9.3f ms %7.1f GB/s\n", name.c_str(), best * 1e3, megabytes / 1e3 / best);
}

View broadcast(View view, const Shape& shape) {
  View result = view;
  result.shape = shape;
  result.strides = {};
  for (int axis = 0; axis < view.shape.rank; ++axis) {
    const int target = shape.rank - view.shape.rank + axis;
    result.strides[target] = view.shape[axis] == 1 ? 0 : view.strides[axis];
  }
  return result;
}

constexpr double mega = 1e6;

// Enough for any of them.
void* workspace() {
  static const Workspace memory(std::int64_t{1} << 27, device);
  return memory.data();
}

void attention() {
  const Kernels& k = kernels(device);
  const Shape square{16, 4, 512, 512}, tables{16, 4, 512, 65};
  const double full = static_cast<double>(square.numel()) * 4 / mega, half = full / 2;
  Buffer x = Buffer::random(square, -3, 3), d = Buffer::random(square, -1, 1), gates = Buffer::random(square, 0, 1);
  Buffer y(square), z(square), position(square), table = Buffer::random(tables, -1, 1), d_table(tables);
  measure("fill [16,4,512,512]", full, [&] { k.fill(y.view, 0.0); });
  measure("copy", 2 * full, [&] { k.copy(y.view, x.view); });
  View transposed = x.view;
  std::swap(transposed.strides[2], transposed.strides[3]);
  measure("copy transposed", 2 * full, [&] { k.copy(y.view, transposed); });
  measure("sigmoid", 2 * full, [&] { k.unary(UnaryOp::sigmoid, 0, y.view, x.view); });
  measure("sigmoid backward", 3 * full, [&] { k.unary_backward(UnaryOp::sigmoid, 0, z.view, d.view, y.view); });
  measure("softplus", 2 * full, [&] { k.unary(UnaryOp::softplus, 0, y.view, x.view); });
  measure("softplus backward", 3 * full, [&] { k.unary_backward(UnaryOp::softplus, 0, z.view, d.view, x.view); });
  measure("add", 3 * full, [&] { k.binary(BinaryOp::add, y.view, x.view, d.view); });
  Buffer head_bias = Buffer::random({4, 512, 512}, -1, 1);
  measure("add [H,T,T]", 2 * full, [&] { k.binary(BinaryOp::add, y.view, x.view, broadcast(head_bias.view, square)); });
  Buffer row_bias = Buffer::random({16, 4, 512, 1}, -1, 1);
  measure("add [B,H,T,1]", 2 * full,
          [&] { k.binary(BinaryOp::add, y.view, x.view, broadcast(row_bias.view, square)); });
  measure("cumsum causal reverse", half + full, [&] { k.cumsum(position.view, gates.view, true, true); });
  measure("cumsum causal", half + full, [&] { k.cumsum(y.view, gates.view, false, true); });
  measure("cumsum", 2 * full, [&] { k.cumsum(y.view, gates.view, false, false); });
  measure("interpolate causal P 64", half + full, [&] { k.interpolate(y.view, table.view, position.view, true); });
  measure("interpolate backward causal P 64", 2 * half + full,
          [&] { k.interpolate_backward(d_table.view, y.view, d.view, table.view, position.view, true, workspace()); });
  Buffer near(square);
  k.unary(UnaryOp::multiply_scalar, 0.1, near.view, position.view);
  measure("interpolate causal, none saturated", half + full,
          [&] { k.interpolate(y.view, table.view, near.view, true); });
  measure("interpolate backward causal, none saturated", 2 * half + full,
          [&] { k.interpolate_backward(d_table.view, y.view, d.view, table.view, near.view, true, workspace()); });
  measure("softmax", 2 * full, [&] { k.softmax(y.view, x.view, false); });
  measure("softmax causal", half + full, [&] { k.softmax(y.view, x.view, true); });
  measure("softmax backward causal", 2 * half + full, [&] { k.softmax_backward(z.view, d.view, y.view, true); });
  Buffer distances = Buffer::random({16, 4, 512, 512}, -1, 1), shared = Buffer::random({4, 1, 512}, -1, 1);
  Buffer heads({4, 512, 512}), d_shared({4, 1, 512});
  measure("read_distance", half + full, [&] { k.read_distance(y.view, distances.view, false); });
  measure("read_distance backward", half + full, [&] { k.read_distance_backward(y.view, d.view, false); });
  measure("read_distance backward, shared [4,1,512]", half / 16,
          [&] { k.read_distance_backward(d_shared.view, head_bias.view, false); });
  Buffer sum({1, 1, 1, 1}), batch({1, 4, 512, 512}), rows({16, 4, 512, 1}), columns({1, 1, 1, 512});
  measure("sum all", full, [&] { k.reduce(ReduceOp::sum, sum.view, x.view, workspace()); });
  measure("sum over B", full, [&] { k.reduce(ReduceOp::sum, batch.view, x.view, workspace()); });
  measure("sum over the last axis", full, [&] { k.reduce(ReduceOp::sum, rows.view, x.view, workspace()); });
  measure("sum over the leading axes", full, [&] { k.reduce(ReduceOp::sum, columns.view, x.view, workspace()); });
  measure("maximum over the last axis", full, [&] { k.reduce(ReduceOp::maximum, rows.view, x.view, workspace()); });
  measure("dropout", 2 * full, [&] { k.dropout(y.view, x.view, 0.1, {}); });
  measure("random_uniform", full, [&] { k.random_uniform(y.view, {}, -1, 1); });
}

void layers() {
  const Kernels& k = kernels(device);
  const Shape wide{8192, 1024}, narrow{8192, 256};
  const double megabytes_wide = static_cast<double>(wide.numel()) * 4 / mega;
  const double megabytes_narrow = static_cast<double>(narrow.numel()) * 4 / mega;
  {
    Buffer x = Buffer::random(wide, -3, 3), d = Buffer::random(wide, -1, 1), y(wide);
    Buffer bias = Buffer::random({1024}, -1, 1);
    measure("gelu [8192,1024]", 2 * megabytes_wide, [&] { k.unary(UnaryOp::gelu, 0, y.view, x.view); });
    measure("gelu backward", 3 * megabytes_wide, [&] { k.unary_backward(UnaryOp::gelu, 0, y.view, d.view, x.view); });
    measure("add bias [1024]", 2 * megabytes_wide,
            [&] { k.binary(BinaryOp::add, y.view, x.view, broadcast(bias.view, wide)); });
    Buffer sum({1, 1024});
    measure("sum of columns [8192,1024]", megabytes_wide,
            [&] { k.reduce(ReduceOp::sum, sum.view, x.view, workspace()); });
  }
  Buffer x = Buffer::random(narrow, -3, 3), d = Buffer::random(narrow, -1, 1), y(narrow), d_x(narrow);
  Buffer weight = Buffer::random({256}, -1, 1), bias = Buffer::random({256}, -1, 1), d_weight({256}), d_bias({256});
  Buffer mean({8192}), rstd({8192}), sum({1, 256});
  measure("sum of columns [8192,256]", megabytes_narrow,
          [&] { k.reduce(ReduceOp::sum, sum.view, x.view, workspace()); });
  measure("layer_norm [8192,256]", 2 * megabytes_narrow,
          [&] { k.norm(y.view, mean.view, rstd.view, {}, x.view, weight.view, bias.view, 1e-5); });
  measure("layer_norm backward", 3 * megabytes_narrow, [&] {
    k.norm_backward(d_x.view, {}, d_weight.view, d_bias.view, d.view, x.view, weight.view, mean.view, rstd.view, false,
                    workspace());
  });
  measure("rms_norm", 2 * megabytes_narrow, [&] { k.norm(y.view, {}, rstd.view, {}, x.view, weight.view, {}, 1e-5); });
  measure("rms_norm backward", 3 * megabytes_narrow, [&] {
    k.norm_backward(d_x.view, {}, d_weight.view, {}, d.view, x.view, weight.view, {}, rstd.view, false, workspace());
  });

  std::vector<std::int32_t> id_values(8192);
  for (std::size_t n = 0; n < id_values.size(); ++n) id_values[n] = static_cast<std::int32_t>(n * 7 % 32);
  Buffer ids(Tensor::from(id_values, {8192}, device)), table = Buffer::random({32, 256}, -1, 1), d_table({32, 256});
  measure("embedding [8192,256], V 32", megabytes_narrow, [&] { k.embedding(y.view, table.view, ids.view); });
  measure("embedding backward", megabytes_narrow,
          [&] { k.embedding_backward(d_table.view, d.view, ids.view, workspace()); });

  const Shape heads{16, 4, 512, 64};
  View head_view = x.view;  // [B, T, H, d] seen as [B, H, T, d]
  head_view.shape = heads;
  head_view.strides = Strides{{512 * 256, 64, 256, 1}};
  Buffer rotated(heads), cosine = Buffer::random({512, 32}, -1, 1), sine = Buffer::random({512, 32}, -1, 1);
  measure("rotate_pairs [16,4,512,64] half", 2 * megabytes_narrow,
          [&] { k.rotate_pairs(rotated.view, head_view, cosine.view, sine.view, false, false); });
  measure("rotate_pairs interleaved", 2 * megabytes_narrow,
          [&] { k.rotate_pairs(rotated.view, head_view, cosine.view, sine.view, true, false); });
  measure("copy of heads", 2 * megabytes_narrow, [&] { k.copy(rotated.view, head_view); });

  Buffer logits = Buffer::random({8192, 512}, -3, 3), d_logits({8192, 512}), loss({8192}), log_sum({8192});
  Buffer mask({8192}, DType::boolean);
  k.fill(mask.view, 1.0);
  const double megabytes_logits = static_cast<double>(logits.view.numel()) * 4 / mega;
  measure("cross_entropy [8192,512]", megabytes_logits,
          [&] { k.cross_entropy(loss.view, log_sum.view, {}, logits.view, ids.view, mask.view); });
  measure("cross_entropy backward", 2 * megabytes_logits,
          [&] { k.cross_entropy_backward(d_logits.view, loss.view, log_sum.view, logits.view, ids.view, mask.view); });

  const Shape parameters{3'000'000};
  const double megabytes = static_cast<double>(parameters.numel()) * 4 / mega;
  Buffer p = Buffer::random(parameters, -1, 1), g = Buffer::random(parameters, -1, 1), m(parameters), v(parameters);
  Buffer norm({1}, DType::f64);
  // gradient scale 1, rate 1e-3, decay 0.1
  const std::vector<float> rate{1, 0, 0.9F, 0.1F, 0.99F, 0.01F, 1 - 1e-4F, 1e-2F, 100, 1e-8F};
  Buffer factors(Tensor::from(rate, {AdamHyperparameters<float>::count}, device));
  measure("adam_step 3 M", 7 * megabytes, [&] {
    k.adam_step({&p.view, 1}, {&m.view, 1}, {&v.view, 1}, {&g.view, 1}, {&factors.view, 1});
  });
  measure("squared_norm 3 M", megabytes, [&] { k.squared_norm({&norm.view, 1}, {&g.view, 1}, workspace()); });
  measure("random_normal 3 M", megabytes, [&] { k.random_normal(p.view, {}, 0, 1); });
}

// The matmuls of the linear layers of one training step. On a GPU: cuBLAS, including the work around its calls.
void products() {
  const Kernels& k = kernels(device);
  const auto product = [&](const std::string& name, std::int64_t m, std::int64_t n, std::int64_t inner) {
    Buffer x = Buffer::random({m, inner}, -1, 1), weight = Buffer::random({n, inner}, -1, 1), y({m, n});
    Buffer bias = Buffer::random({n}, -1, 1);
    Buffer d_weight({n, inner}), d_bias({n});
    const double megabytes = static_cast<double>(m * inner + n * inner + m * n) * 4 / mega;
    measure(name, megabytes, [&] { k.matmul(y.view, x.view, transposed(weight.view), {}, workspace()); });
    measure(name + ", bias", megabytes,
            [&] { k.matmul(y.view, x.view, transposed(weight.view), {.bias = bias.view}, workspace()); });
    const auto weight_gradient = [&](const Epilogue& end) {
      k.matmul(d_weight.view, transposed(y.view), x.view, end, workspace());
    };
    measure(name + ", gradient of the weight", megabytes, [&] { weight_gradient({}); });
    if (k.matmul_sums_rows(d_weight.view, transposed(y.view), x.view) == 0) return;
    measure(name + ", and of the bias", megabytes, [&] { weight_gradient({.row_sums = d_bias.view}); });
  };
  product("matmul 8192 x 256 x 256", 8192, 256, 256);
  product("matmul 8192 x 1024 x 256", 8192, 1024, 256);
  product("matmul 8192 x 256 x 1024", 8192, 256, 1024);
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  try {
    for (int n = 1; n < argc; ++n) {
      if (std::strcmp(argv[n], "--device") == 0 && n + 1 < argc) {
        tally::device = tally::device_from_text(argv[++n]);
      } else {
        tally::wanted = argv[n];
      }
    }
    tally::attention();
    tally::layers();
    tally::products();
  } catch (const tally::Error& error) {
    std::fprintf(stderr, "kernels_bench: %s\n", error.what());
    return 1;
  }
}
