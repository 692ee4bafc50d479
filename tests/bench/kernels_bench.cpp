// Time and memory rate of the CPU kernels at the sizes of a training step (B = 16, H = 4, T = 512, D = 256). Bytes are
// those a kernel has to read and write at least: causal ones read the lower triangle and write the whole square.
//
//   kernels_bench [part of a name]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/kernels.hpp"
#include "core/update_factors.hpp"

namespace tally {
namespace {

// Owns the elements of a dense view.
class Buffer {
 public:
  explicit Buffer(const Shape& shape, DType dtype = DType::f32)
      : bytes_(static_cast<std::size_t>(shape.numel()) * size_of(dtype)),
        view{bytes_.data(), dtype, shape, dense_strides(shape)} {}

  static Buffer random(const Shape& shape, double low, double high) {
    Buffer buffer(shape);
    cpu::random_uniform(buffer.view, {.seed = 1}, low, high);
    return buffer;
  }

 private:
  std::vector<std::byte> bytes_;

 public:
  View view;
};

std::string wanted;

void measure(const std::string& name, double megabytes, const std::function<void()>& run) {
  if (name.find(wanted) == std::string::npos) return;
  using Clock = std::chrono::steady_clock;
  run();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 7; ++i) {
    const auto start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
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

void attention() {
  const Shape square{16, 4, 512, 512}, tables{16, 4, 512, 65};
  const double full = static_cast<double>(square.numel()) * 4 / mega, half = full / 2;
  Buffer x = Buffer::random(square, -3, 3), d = Buffer::random(square, -1, 1), gates = Buffer::random(square, 0, 1);
  Buffer y(square), z(square), position(square), table = Buffer::random(tables, -1, 1), d_table(tables);
  measure("fill [16,4,512,512]", full, [&] { cpu::fill(y.view, 0.0); });
  measure("copy", 2 * full, [&] { cpu::copy(y.view, x.view); });
  View transposed = x.view;
  std::swap(transposed.strides[2], transposed.strides[3]);
  measure("copy transposed", 2 * full, [&] { cpu::copy(y.view, transposed); });
  measure("sigmoid", 2 * full, [&] { cpu::unary(UnaryOp::sigmoid, 0, y.view, x.view); });
  measure("sigmoid backward", 3 * full, [&] { cpu::unary_backward(UnaryOp::sigmoid, 0, z.view, d.view, {}, y.view); });
  measure("softplus", 2 * full, [&] { cpu::unary(UnaryOp::softplus, 0, y.view, x.view); });
  measure("softplus backward", 3 * full,
          [&] { cpu::unary_backward(UnaryOp::softplus, 0, z.view, d.view, x.view, {}); });
  measure("add", 3 * full, [&] { cpu::binary(BinaryOp::add, y.view, x.view, d.view); });
  Buffer head_bias = Buffer::random({4, 512, 512}, -1, 1);
  measure("add [H,T,T]", 2 * full,
          [&] { cpu::binary(BinaryOp::add, y.view, x.view, broadcast(head_bias.view, square)); });
  Buffer row_bias = Buffer::random({16, 4, 512, 1}, -1, 1);
  measure("add [B,H,T,1]", 2 * full,
          [&] { cpu::binary(BinaryOp::add, y.view, x.view, broadcast(row_bias.view, square)); });
  measure("cumsum causal reverse", half + full, [&] { cpu::cumsum(position.view, gates.view, true, true); });
  measure("cumsum causal", half + full, [&] { cpu::cumsum(y.view, gates.view, false, true); });
  measure("cumsum", 2 * full, [&] { cpu::cumsum(y.view, gates.view, false, false); });
  measure("interpolate causal P 64", half + full, [&] { cpu::interpolate(y.view, table.view, position.view, true); });
  measure("interpolate backward causal P 64", 2 * half + full,
          [&] { cpu::interpolate_backward(d_table.view, y.view, d.view, table.view, position.view, true); });
  Buffer near(square);
  cpu::unary(UnaryOp::multiply_scalar, 0.1, near.view, position.view);
  measure("interpolate causal, none saturated", half + full,
          [&] { cpu::interpolate(y.view, table.view, near.view, true); });
  measure("interpolate backward causal, none saturated", 2 * half + full,
          [&] { cpu::interpolate_backward(d_table.view, y.view, d.view, table.view, near.view, true); });
  measure("softmax", 2 * full, [&] { cpu::softmax(y.view, x.view, false); });
  measure("softmax causal", half + full, [&] { cpu::softmax(y.view, x.view, true); });
  measure("softmax backward causal", 2 * half + full, [&] { cpu::softmax_backward(z.view, d.view, y.view, true); });
  Buffer distances = Buffer::random({16, 4, 512, 512}, -1, 1), shared = Buffer::random({4, 1, 512}, -1, 1);
  Buffer heads({4, 512, 512}), d_shared({4, 1, 512});
  measure("read_distance", half + full, [&] { cpu::read_distance(y.view, distances.view, false); });
  measure("read_distance backward", half + full, [&] { cpu::read_distance_backward(y.view, d.view, false); });
  measure("read_distance backward, shared [4,1,512]", half / 16,
          [&] { cpu::read_distance_backward(d_shared.view, head_bias.view, false); });
  Buffer sum({1, 1, 1, 1}), batch({1, 4, 512, 512}), rows({16, 4, 512, 1}), columns({1, 1, 1, 512});
  measure("sum all", full, [&] { cpu::reduce(ReduceOp::sum, sum.view, x.view); });
  measure("sum over B", full, [&] { cpu::reduce(ReduceOp::sum, batch.view, x.view); });
  measure("sum over the last axis", full, [&] { cpu::reduce(ReduceOp::sum, rows.view, x.view); });
  measure("sum over the leading axes", full, [&] { cpu::reduce(ReduceOp::sum, columns.view, x.view); });
  measure("maximum over the last axis", full, [&] { cpu::reduce(ReduceOp::maximum, rows.view, x.view); });
  measure("dropout", 2 * full, [&] { cpu::dropout(y.view, x.view, 0.1, {}); });
  measure("random_uniform", full, [&] { cpu::random_uniform(y.view, {}, -1, 1); });
}

void layers() {
  const Shape wide{8192, 1024}, narrow{8192, 256};
  const double megabytes_wide = static_cast<double>(wide.numel()) * 4 / mega;
  const double megabytes_narrow = static_cast<double>(narrow.numel()) * 4 / mega;
  {
    Buffer x = Buffer::random(wide, -3, 3), d = Buffer::random(wide, -1, 1), y(wide);
    Buffer bias = Buffer::random({1024}, -1, 1);
    measure("gelu [8192,1024]", 2 * megabytes_wide, [&] { cpu::unary(UnaryOp::gelu, 0, y.view, x.view); });
    measure("gelu backward", 3 * megabytes_wide,
            [&] { cpu::unary_backward(UnaryOp::gelu, 0, y.view, d.view, x.view, {}); });
    measure("add bias [1024]", 2 * megabytes_wide,
            [&] { cpu::binary(BinaryOp::add, y.view, x.view, broadcast(bias.view, wide)); });
    Buffer sum({1, 1024});
    measure("sum of columns [8192,1024]", megabytes_wide, [&] { cpu::reduce(ReduceOp::sum, sum.view, x.view); });
  }
  Buffer x = Buffer::random(narrow, -3, 3), d = Buffer::random(narrow, -1, 1), y(narrow), d_x(narrow);
  Buffer weight = Buffer::random({256}, -1, 1), bias = Buffer::random({256}, -1, 1), d_weight({256}), d_bias({256});
  Buffer mean({8192}), rstd({8192}), scratch({cpu::norm_backward_scratch(8192, 256)}), sum({1, 256});
  measure("sum of columns [8192,256]", megabytes_narrow, [&] { cpu::reduce(ReduceOp::sum, sum.view, x.view); });
  measure("layer_norm [8192,256]", 2 * megabytes_narrow,
          [&] { cpu::layer_norm(y.view, mean.view, rstd.view, x.view, weight.view, bias.view, 1e-5); });
  measure("layer_norm backward", 3 * megabytes_narrow, [&] {
    cpu::layer_norm_backward(d_x.view, d_weight.view, d_bias.view, scratch.view, d.view, x.view, weight.view, mean.view,
                             rstd.view);
  });
  measure("rms_norm", 2 * megabytes_narrow, [&] { cpu::rms_norm(y.view, rstd.view, x.view, weight.view, 1e-5); });
  measure("rms_norm backward", 3 * megabytes_narrow, [&] {
    cpu::rms_norm_backward(d_x.view, d_weight.view, scratch.view, d.view, x.view, weight.view, rstd.view);
  });

  Buffer ids({8192}, DType::i32), table = Buffer::random({32, 256}, -1, 1), d_table({32, 256});
  for (int n = 0; n < 8192; ++n) ids.view.as<std::int32_t>()[n] = n * 7 % 32;
  measure("embedding [8192,256], V 32", megabytes_narrow, [&] { cpu::embedding(y.view, table.view, ids.view); });
  measure("embedding backward", megabytes_narrow, [&] { cpu::embedding_backward(d_table.view, d.view, ids.view); });

  const Shape heads{16, 4, 512, 64};
  View head_view = x.view;  // [B, T, H, d] seen as [B, H, T, d]
  head_view.shape = heads;
  head_view.strides = Strides{{512 * 256, 64, 256, 1}};
  Buffer rotated(heads), cosine = Buffer::random({512, 32}, -1, 1), sine = Buffer::random({512, 32}, -1, 1);
  measure("rotate_pairs [16,4,512,64] half", 2 * megabytes_narrow,
          [&] { cpu::rotate_pairs(rotated.view, head_view, cosine.view, sine.view, false, false); });
  measure("rotate_pairs interleaved", 2 * megabytes_narrow,
          [&] { cpu::rotate_pairs(rotated.view, head_view, cosine.view, sine.view, true, false); });
  measure("copy of heads", 2 * megabytes_narrow, [&] { cpu::copy(rotated.view, head_view); });

  Buffer logits = Buffer::random({8192, 512}, -3, 3), d_logits({8192, 512}), loss({8192}), log_sum({8192});
  Buffer mask({8192}, DType::boolean);
  cpu::fill(mask.view, 1.0);
  const double megabytes_logits = static_cast<double>(logits.view.numel()) * 4 / mega;
  measure("cross_entropy [8192,512]", megabytes_logits,
          [&] { cpu::cross_entropy(loss.view, log_sum.view, logits.view, ids.view, mask.view); });
  measure("cross_entropy backward", 2 * megabytes_logits, [&] {
    cpu::cross_entropy_backward(d_logits.view, loss.view, log_sum.view, logits.view, ids.view, mask.view);
  });

  const Shape parameters{3'000'000};
  const double megabytes = static_cast<double>(parameters.numel()) * 4 / mega;
  Buffer p = Buffer::random(parameters, -1, 1), g = Buffer::random(parameters, -1, 1), m(parameters), v(parameters);
  Buffer norm({1}, DType::f64);
  // gradient scale 1, rate 1e-3, decay 0.1
  Buffer factors({AdamFactors<float>::count});
  *factors.view.as<AdamFactors<float>>() = {1, 0, 0.9F, 0.1F, 0.99F, 0.01F, 1 - 1e-4F, 1e-2F, 100, 1e-8F};
  measure("adam_step 3 M", 7 * megabytes, [&] {
    cpu::adam_step({&p.view, 1}, {&m.view, 1}, {&v.view, 1}, {&g.view, 1}, {&factors.view, 1});
  });
  measure("squared_norm 3 M", megabytes, [&] { cpu::squared_norm({&norm.view, 1}, {&g.view, 1}); });
  measure("random_normal 3 M", megabytes, [&] { cpu::random_normal(p.view, {}, 0, 1); });
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  if (argc > 1) tally::wanted = argv[1];
  tally::attention();
  tally::layers();
}
