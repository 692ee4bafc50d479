// Fused attention on the CPU: no matrix of T x K numbers is ever stored.
//
//   s_ij = scale q_i.k_j,  l_ij = s_ij + the terms of the score modification and the biases,  a_ij = softmax over the
//   unmasked keys of i, o_i = sum_j a_ij v_j.
//
// Forward takes the key tiles of a row tile from the diagonal to the left, with a running maximum m and sum n:
//   m' = max(m, max_j l_ij),  n' = n e^(m-m') + sum_j e^(l_ij - m'),  o' = o e^(m-m') + sum_j e^(l_ij - m') v_j.
// It saves m and 1/n of every row, because their joint logarithm would cost digits of every weight. With a score
// modification it also saves the running sums at every tile's right edge. (Milakov and Gimelshein 2018, arXiv
// 1805.02867; FlashAttention, arXiv 2205.14135; running sums: core/cpu/attention/score_mod_loops.hpp; other rules than
// the softmax, and the leftover mass: core/cpu/attention/softmax.hpp.)
//
// Backward recomputes the weights as e^(l - m) / n and takes the key tiles from left to right:
//   dv_j = sum_i a_ij do_i,  da_ij = do_i.v_j,  dl_ij = a_ij (da_ij - do_i.o_i).
//   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i.
//
// A chunk of work is one head of keys with the query heads that share it. If heads are few, a chunk has some of these
// query heads or a share of their row tiles. The division depends only on shapes. Sums within a chunk are formed in the
// order of its heads, and sums over chunks afterwards in a fixed order: the bits are the same for any number of
// threads. A tile is skipped if its weights are negligible compared with those already in its rows (steep biases, FoX).
#include <omp.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "core/cpu/attention/worker.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

bool skips_tiles() {
  static const char* const wish = std::getenv("TALLY_SKIP_TILES");
  return wish == nullptr || std::string_view(wish) != "0";
}

namespace {
thread_local TileCounts* counted = nullptr;  // null: no counting
}

TileCounts& TileCounts::operator+=(const TileCounts& more) {
  computed += more.computed;
  saturated += more.saturated;
  skipped += more.skipped;
  return *this;
}

CountTiles::CountTiles() : before_(std::exchange(counted, &counts_)) {}
CountTiles::~CountTiles() { counted = before_; }

namespace {

// Workers for all threads, and their accumulators in backward.
template <class T>
class Team {
 public:
  Team(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        division_(divide(call)),
        threads_(thread_count()),
        key_heads_(call.batch() * key_heads(call)),
        key_count_(KeyAccumulators<T>(call, nullptr).count) {
    workers_ = arena.take<Worker<T>*>(threads_);
    for (int n = 0; n < threads_; ++n) {
      Worker<T>* const worker = arena.make<Worker<T>>(call, gradients);
      if (worker != nullptr) workers_[n] = worker;
    }
    if (gradients == nullptr) return;
    gradients_ = gradients;
    // Sums by key of a single chunk are needed until they are written, sums of several chunks until all are added up.
    key_gradients_ = arena.take<T>(key_count_ * (division_.chunks() == 1 ? threads_ : chunks()));
    shared_ = {nullptr, 0, call.batch(), call.heads(), division_.shares};
    for_each_operand([&](const OperandRule& rule, const View& x) { shared_.step += shared_count(rule, x); }, call);
    shared_.data = arena.take<double>(shared_.count());
  }

  void forward() const {
    parallel_for(chunks(), [&](std::int64_t index) { workers_[omp_get_thread_num()]->forward(chunk_at(index)); });
    report_tiles();
  }

  void backward() const {
    std::fill_n(shared_.data, shared_.count(), 0.0);
    const auto compute = [&](std::int64_t index, T* sums) {
      Worker<T>& worker = *workers_[omp_get_thread_num()];
      worker.backward(chunk_at(index), sums, shared_);
    };
    const Worker<T>& any = *workers_[0];
    const std::int64_t parts = division_.chunks(), all = chunks();
    const auto write = [&](std::int64_t key, T* sums) {
      any.write_key_gradients(key / key_heads(call_), key % key_heads(call_), sums, parts);
    };
    if (parts == 1) {
      parallel_for(all, [&](std::int64_t index) {
        T* const sums = key_gradients_ + omp_get_thread_num() * key_count_;
        compute(index, sums);
        write(index, sums);
      });
    } else {
      parallel_for(all, [&](std::int64_t index) { compute(index, key_gradients_ + index * key_count_); });
      parallel_for(key_heads_, [&](std::int64_t key) { write(key, key_gradients_ + key * parts * key_count_); });
    }
    write_shared();
    report_tiles();
  }

 private:
  void report_tiles() const {
    for (int n = 0; counted != nullptr && n < threads_; ++n) *counted += workers_[n]->tiles();
  }
  void write_shared() const {
    std::int64_t first = 0;
    const auto write = [&](const OperandRule& rule, const View& x, const View& d) {
      const std::int64_t count = shared_count(rule, x);
      const auto write_as = [&](auto zero) { shared_.write<decltype(zero)>(d, first, count); };
      if (count > 0 && d) dispatch_floating(d.dtype, write_as);
      first += count;
    };
    for_each_operand(write, call_, *gradients_);
  }
  std::int64_t chunks() const { return key_heads_ * division_.chunks(); }
  WorkItem chunk_at(std::int64_t index) const {
    const std::int64_t group = gqa_group_size(call_), ranges = division_.ranges;
    const std::int64_t range = index / division_.shares % ranges, key = index / division_.chunks();
    const std::int64_t key_head = key % key_heads(call_), first = key_head * group;
    return {key / key_heads(call_), key_head, first + range * group / ranges, first + (range + 1) * group / ranges,
            index % division_.shares};
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_ = nullptr;
  WorkPartition division_;
  int threads_;
  std::int64_t key_heads_, key_count_;
  Worker<T>** workers_;
  T* key_gradients_ = nullptr;
  SharedSums shared_;
};

// f(team) with the team's memory in `workspace`. Returns its bytes. If `workspace` is null, memory is only counted, and
// f must do nothing.
template <class F>
std::int64_t with_team(const AttentionCall& call, const AttentionGradients* gradients, void* workspace, const F& f) {
  Arena arena(workspace);
  if (call.output.numel() == 0) return 0;
  dispatch_floating(call.softmax_statistics.dtype, [&](auto zero) { f(Team<decltype(zero)>(call, gradients, arena)); });
  return arena.bytes();
}
constexpr auto only_count = [](const auto&) {};

}  // namespace

std::int64_t attention_prefix_sums(const AttentionCall& call) {
  return checkpoint_at(call, call.batch() * call.heads(), 0, 0);
}

std::int64_t attention_workspace(const AttentionCall& call) { return with_team(call, nullptr, nullptr, only_count); }
void attention(const AttentionCall& call, void* workspace) {
  with_team(call, nullptr, workspace, [](const auto& team) { team.forward(); });
}

std::int64_t attention_backward_workspace(const AttentionCall& call, const AttentionGradients& gradients) {
  return with_team(call, &gradients, nullptr, only_count);
}
void attention_backward(const AttentionCall& call, const AttentionGradients& gradients, void* workspace) {
  with_team(call, &gradients, workspace, [](const auto& team) { team.backward(); });
}

}  // namespace tally::cpu
