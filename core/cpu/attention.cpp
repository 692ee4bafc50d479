// Tiled attention on the CPU: no matrix of T x K numbers is ever stored.
//
//   s_ij = scale q_i.k_j,  l_ij = s_ij + the terms of scan and biases,  a_ij = softmax over j <= i,  o_i = sum_j a_ij
//   v_j
//
// Forward takes the key tiles of a row tile from the diagonal to the left, with the softmax's running maximum m and sum
// n:
//   m' = max(m, max_j l_ij),  n' = n e^(m-m') + sum_j e^(l_ij - m'),  o' = o e^(m-m') + sum_j e^(l_ij - m') v_j
// and keeps m and 1/n a row (their joint logarithm would cost digits of every weight) and, with a scan, the running
// sums at every tile's right edge. (Milakov and Gimelshein 2018, arXiv 1805.02867; FlashAttention, arXiv 2205.14135;
// sums along the keys: core/cpu/attention_contextual.cpp.) Backward has the weights again as e^(l - m) / n, takes the
// key tiles from left to right, and adds up
//   dv_j = sum_i a_ij do_i,  da_ij = do_i.v_j,  dl_ij = a_ij (da_ij - do_i.o_i),  dq_i = scale sum_j ds_ij k_j,
//   dk_j = scale sum_i ds_ij q_i
//
// One chunk of work is a share of the row tiles of one head; heads are divided where there are few of them, by shape
// alone, and what the shares of a head have in common is added in fixed order: the same bits for any number of threads.
// A tile whose weights are all negligible beside what its rows already hold is left out (steep biases, FoX).
#include <omp.h>

#include <cstdlib>
#include <string_view>

#include "core/cpu/attention_worker.hpp"
#include "core/kernels.hpp"

namespace tally::cpu {

bool skips_tiles() {
  static const char* const wish = std::getenv("TALLY_SKIP_TILES");
  return wish == nullptr || std::string_view(wish) != "0";
}

namespace {

// Workers for all threads, and what they add up in backward.
template <class T>
class Team {
 public:
  Team(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        shares_(shares_of_head(call)),
        heads_(call.batch() * call.heads()),
        key_count_(Worker<T>::key_gradient_count(call)),
        shared_count_(shared_count(call.scan)) {
    const int threads = thread_count();
    workers_ = arena.take<Worker<T>*>(threads);
    for (int n = 0; n < threads; ++n) {
      Worker<T>* const worker = arena.make<Worker<T>>(call, gradients);
      if (worker != nullptr) workers_[n] = worker;
    }
    if (gradients == nullptr) return;
    for (int n = 0; n < call.bias_count; ++n) shared_count_ += shared_count(call.biases[n], call.keys());
    // A head that is not divided needs its sums only until they are written.
    key_gradients_ = arena.take<T>(key_count_ * (shares_ > 1 ? heads_ * shares_ : threads));
    shared_ = arena.take<double>(shared_count_ * heads_ * shares_);
  }

  void forward() const {
    parallel_for(heads_ * shares_,
                 [&](std::int64_t index) { workers_[omp_get_thread_num()]->forward(chunk_at(index)); });
  }

  void backward() const {
    std::fill_n(shared_, shared_count_ * heads_ * shares_, 0.0);
    parallel_for(heads_ * shares_, [&](std::int64_t index) {
      const std::int64_t thread = omp_get_thread_num();
      Worker<T>& worker = *workers_[thread];
      const Chunk chunk = chunk_at(index);
      T* const sums = key_gradients_ + (shares_ > 1 ? index : thread) * key_count_;
      worker.backward(chunk, sums, shared_ + index * shared_count_);
      if (shares_ == 1) worker.write_key_gradients(chunk.batch, chunk.head, sums, 1);
    });
    const Worker<T>& any = *workers_[0];
    if (shares_ > 1) {
      parallel_for(heads_, [&](std::int64_t head) {
        any.write_key_gradients(head / call_.heads(), head % call_.heads(),
                                key_gradients_ + head * shares_ * key_count_, shares_);
      });
    }
    any.write_shared({shared_, shared_count_, call_.batch(), call_.heads(), shares_});
  }

 private:
  Chunk chunk_at(std::int64_t index) const {
    const std::int64_t head = index / shares_;
    return {head / call_.heads(), head % call_.heads(), index % shares_};
  }

  const AttentionCall& call_;
  std::int64_t shares_, heads_, key_count_, shared_count_;
  Worker<T>** workers_;
  T* key_gradients_ = nullptr;
  double* shared_ = nullptr;
};

// f(team) with its memory in `workspace`; null only counts it. Returns the bytes.
template <class F>
std::int64_t with_team(const AttentionCall& call, const AttentionGradients* gradients, void* workspace, const F& f) {
  Arena arena(workspace);
  if (call.output.numel() == 0) return 0;
  dispatch_floating(call.q.dtype, [&](auto zero) { f(Team<decltype(zero)>(call, gradients, arena)); });
  return arena.bytes();
}
constexpr auto only_count = [](const auto&) {};

}  // namespace

std::int64_t attention_prefix_sums(std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  return heads * ((queries + tile_rows - 1) / tile_rows) * key_tiles_before(keys) * tile_rows;
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
