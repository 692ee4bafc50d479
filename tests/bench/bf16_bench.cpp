// bf16 matmuls compared with f32 matmuls and with oneDNN's, on the shapes of a small transformer and on squares:
//   bf16_bench [--threads N] [--rounds N] [--portable] [--processor-time]
// Tally takes f32 and rounds while it packs. oneDNN takes operands that are bf16 in memory already, and gives f32;
// "rounding" includes making them. Each round times all, one after the other. Printed are medians over the rounds;
// ratios are taken within a round. --portable: without instructions for bf16. --processor-time: with one thread (and
// OMP_NUM_THREADS=1, for oneDNN), on a machine that others use too.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "core/cpu/matmul/matmul.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/math/bfloat16.hpp"
#include "tests/bench/gemm_cases.hpp"

#if TALLY_ONEDNN
#include <dnnl.hpp>
#endif

namespace {

using namespace tally;
using namespace tally::bench;

double rate_of(const Case& shape, const cpu::Microkernel& kernel) {
  Data<float> data(shape);
  const View a = matrices(data.a, shape.batch, shape.m, shape.k, shape.transpose_a);
  const View b = matrices(data.b, shape.batch, shape.k, shape.n, shape.transpose_b);
  const View c = matrices(data.c, shape.batch, shape.m, shape.n, false);
  const Workspace workspace(cpu::matmul_workspace_by(&kernel, c, a), {});
  return rate(shape, [&] { cpu::matmul_by(&kernel, c, a, b, {}, workspace.data()); });
}

#if TALLY_ONEDNN
// `rounds`: with the rounding of operands that are f32 in memory, each time.
double rate_of_onednn(const Case& shape, bool rounds) {
  using dnnl::memory;
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto described = [&](int rows, int columns, bool transposed, memory::data_type type) {
    const memory::dims sizes{shape.batch, rows, columns}, plain{std::int64_t{rows} * columns, columns, 1},
        turned{std::int64_t{rows} * columns, 1, rows};
    return memory::desc(sizes, type, transposed ? turned : plain);
  };
  const auto narrow = memory::data_type::bf16;
  const auto a = described(shape.m, shape.k, shape.transpose_a, narrow),
             b = described(shape.k, shape.n, shape.transpose_b, narrow),
             c = described(shape.m, shape.n, false, memory::data_type::f32);
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
  Data<float> data(shape);
  std::vector<Bfloat16> narrow_a(data.a.begin(), data.a.end()), narrow_b(data.b.begin(), data.b.end());
  const auto at = [&](const memory::desc& desc, const void* numbers) {
    return memory(desc, engine, const_cast<void*>(numbers));
  };
  const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(a, narrow_a.data())},
                                                  {DNNL_ARG_WEIGHTS, at(b, narrow_b.data())},
                                                  {DNNL_ARG_DST, at(c, data.c.data())}};
  memory wide_a = at(described(shape.m, shape.k, shape.transpose_a, memory::data_type::f32), data.a.data());
  memory wide_b = at(described(shape.k, shape.n, shape.transpose_b, memory::data_type::f32), data.b.data());
  memory to_a = arguments.at(DNNL_ARG_SRC), to_b = arguments.at(DNNL_ARG_WEIGHTS);
  const dnnl::reorder round_a(wide_a, to_a), round_b(wide_b, to_b);
  return rate(shape, [&] {
    if (rounds) {
      round_a.execute(stream, wide_a, to_a);
      round_b.execute(stream, wide_b, to_b);
    }
    product.execute(stream, arguments);
    stream.wait();
  });
}
#else
double rate_of_onednn(const Case&, bool) { return 0; }
#endif

int run(int threads, int rounds, const cpu::Microkernel& kernel) {
  set_thread_count(threads);
  const Bf16Instructions instructions = bf16_instructions();
  std::printf("bf16 by %s (%s), %d threads, %d rounds\n\n", instructions.name.c_str(),
              instructions.why_not_more.c_str(), threads, rounds);
  std::printf("%-20s %5s %5s %5s %5s    %8s %8s %8s %8s   of f32  of oneDNN  of rounding\n", "GFLOP/s", "batch", "M",
              "N", "K", "bf16", "f32", "oneDNN", "rounding");
  for (const Case& shape : cases) {
    std::vector<double> ours, in_f32, theirs, rounding, of_f32, of_theirs, of_rounding;
    for (int round = 0; round < rounds; ++round) {
      ours.push_back(rate_of(shape, kernel));
      in_f32.push_back(our_rate<float>(shape));
      theirs.push_back(rate_of_onednn(shape, false));
      rounding.push_back(rate_of_onednn(shape, true));
      of_f32.push_back(ours.back() / in_f32.back());
      of_theirs.push_back(theirs.back() > 0 ? ours.back() / theirs.back() : 0);
      of_rounding.push_back(rounding.back() > 0 ? ours.back() / rounding.back() : 0);
    }
    std::printf("%-20s %5d %5d %5d %5d %c%c %8.1f %8.1f %8.1f %8.1f   %6.2f  %6.2f  %6.2f\n", shape.name, shape.batch,
                shape.m, shape.n, shape.k, shape.transpose_a ? 't' : 'n', shape.transpose_b ? 't' : 'n', median(ours),
                median(in_f32), median(theirs), median(rounding), median(of_f32), median(of_theirs),
                median(of_rounding));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = thread_count(), rounds = 9;
  const cpu::Microkernel* kernel = &cpu::bf16_microkernel();
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--portable") == 0) {
      kernel = &cpu::bf16_portable;
    } else if (std::strcmp(argv[i], "--processor-time") == 0) {
      processor_time = true;
    } else if (std::strcmp(argv[i], "--threads") == 0 && has_value) {
      threads = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--rounds") == 0 && has_value) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: bf16_bench [--threads N] [--rounds N] [--portable] [--processor-time]\n");
      return 2;
    }
  }
  return run(threads, rounds, *kernel);
}
