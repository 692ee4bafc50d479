#include "cuda/emulator/block.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "cuda/emulator/block_messages.hpp"

namespace tally::cuda_host {

constinit thread_local uint3 threadIdx;
constinit thread_local uint3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace {

std::uint32_t bit(int lane) { return std::uint32_t{1} << lane; }
bool holds(std::uint32_t mask, int lane) { return (mask & bit(lane)) != 0; }

// Calls what(lane) for every lane of the mask, from the lowest.
template <class F>
void for_lanes(std::uint32_t mask, F&& what) {
  for (; mask != 0; mask &= mask - 1) what(std::countr_zero(mask));
}

void* take_shared(std::size_t bytes, std::size_t alignment) {
  const TsanIgnore ignore;
  void* const data = ::operator new (bytes, std::align_val_t{std::max<std::size_t>(alignment, 16)});
  std::memset(data, 0xff, bytes);  // NaN in every floating type
  return data;
}

void free_shared(void* data, std::size_t alignment) {
  const TsanIgnore ignore;
  ::operator delete (data, std::align_val_t{std::max<std::size_t>(alignment, 16)});
}

}  // namespace

Block& Block::own() {
  thread_local const std::unique_ptr<Block> block = std::make_unique<Block>();
  return *block;
}

// The fibers of this block are never continued, so no object on this stack may own memory.
template <class F>
void Block::stop(F&& text) {
  error_ = formatted("kernel launched at {}, block {}: {}", text_of(launch_->line),
                     text_of(index_of(block_number_, launch_->grid)), text());
  go_to_main();
}

// ---------------------------------------------------------------------------------------------------------------------
// Taking turns

std::string Block::run(const Launch& launch, const Settings& settings, std::uint64_t index, void* done_token) {
  launch_ = &launch;
  settings_ = settings;
  block_number_ = index;
  done_token_ = done_token;
  set_up();
  make_current(*next_that_can_run());
  current_->fiber = take_fiber();
  tsan_switch(current_->tsan);
  main_.switch_to(*current_->fiber);
  clean_up();
  return std::move(error_);
}

void Block::set_up() {
  error_.clear();
  count_ = static_cast<int>(launch_->block.count());
  can_run_ = count_;
  gone_ = at_barrier_ = 0;
  barriers_ = 0;
  first_at_barrier_ = first_gone_ = nullptr;
  random_state_ = settings_.seed * 0x9E3779B97F4A7C15u + block_number_;
  blockDim = launch_->block;
  gridDim = launch_->grid;
  blockIdx = index_of(block_number_, launch_->grid);
  main_tsan_ = tsan_current();
  number_threads();
  for (int n = 0; n < count_; ++n) {
    Thread& thread = threads_[static_cast<std::size_t>(n)];
    thread.state = State::fresh;
    thread.fiber = nullptr;
    thread.tsan = tsan_create();  // created here, where TSan relates it to no other thread
    thread.warp_syncs = 0;
    copies_[static_cast<std::size_t>(n)].clear();
  }
  for (int first = 0; first < count_; first += warpSize) {
    const int lanes = std::min(count_ - first, warpSize);
    warps_[static_cast<std::size_t>(first / warpSize)] = {~std::uint32_t{0} >> (warpSize - lanes), 0, 0};
  }
  set_order();
}

// Most blocks have the size of the previous one, and divisions are slow.
void Block::number_threads() {
  const dim3& size = launch_->block;
  if (numbered_.x == size.x && numbered_.y == size.y && numbered_.z == size.z) return;
  numbered_ = size;
  for (int n = 0; n < count_; ++n) {
    Thread& thread = threads_[static_cast<std::size_t>(n)];
    thread.number = n;
    thread.index = index_of(static_cast<std::uint64_t>(n), size);
  }
}

// Called after success and failure: the fibers of threads that were stopped midway are released as well.
void Block::clean_up() {
  current_ = nullptr;
  free_count_ = 0;
  for (const auto& fiber : fibers_) free_fibers_[static_cast<std::size_t>(free_count_++)] = fiber.get();
  for (int n = 0; n < count_; ++n) tsan_destroy(threads_[static_cast<std::size_t>(n)].tsan);
  for (std::size_t n = 0; n < shared_count_; ++n) free_shared(shared_[n].data, shared_[n].alignment);
  shared_count_ = 0;
  static_bytes_ = 0;
  if (dynamic_ != nullptr) free_shared(dynamic_, 16);
  dynamic_ = nullptr;
}

std::uint32_t Block::random() {
  // SplitMix64 (Steele et al., OOPSLA 2014)
  random_state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
}

// A new round; a random schedule changes its order in each.
void Block::set_order() {
  cursor_ = 0;
  int* const order = order_.data();
  std::iota(order, order + count_, 0);
  if (settings_.schedule == Schedule::reverse) std::reverse(order, order + count_);
  if (settings_.schedule != Schedule::random) return;
  for (int n = count_ - 1; n > 0; --n) {
    std::swap(order[n], order[random() % static_cast<std::uint32_t>(n + 1)]);
  }
}

// Returns null if no thread can run.
Block::Thread* Block::next_that_can_run() {
  if (can_run_ == 0) return nullptr;
  while (true) {
    if (cursor_ == count_) {
      if (settings_.schedule == Schedule::random) set_order();
      cursor_ = 0;
    }
    Thread& thread = threads_[static_cast<std::size_t>(order_[static_cast<std::size_t>(cursor_++)])];
    if (thread.state == State::fresh || thread.state == State::ready) return &thread;
  }
}

void Block::make_current(Thread& thread) {
  current_ = &thread;
  threadIdx = thread.index;
}

// The running thread waits; returns when it was released and has its turn.
void Block::yield() {
  --can_run_;
  Thread* const next = next_that_can_run();
  if (next == nullptr) stop([&] { return formatted("every thread waits for others:{}", who_waits_where()); });
  if (next == current_) return;
  Fiber& from = *current_->fiber;
  make_current(*next);
  if (next->fiber == nullptr) next->fiber = take_fiber();
  tsan_switch(next->tsan);
  from.switch_to(*next->fiber);
}

Fiber* Block::take_fiber() {
  if (free_count_ == 0) {
    fibers_.push_back(std::make_unique<Fiber>(stack_bytes));
    free_fibers_[static_cast<std::size_t>(free_count_++)] = fibers_.back().get();
  }
  Fiber* const fiber = free_fibers_[static_cast<std::size_t>(--free_count_)];
  fiber->start(&Block::enter);
  return fiber;
}

void Block::enter() {
  Fiber::entered();
  own().run_threads();
}

void Block::run_threads() noexcept {
  while (true) {
    launch_->body(launch_->arguments);
    leave();
    Thread* const next = next_that_can_run();
    if (next == nullptr && gone_ == count_) go_to_main();
    if (next == nullptr) stop([&] { return formatted("every thread waits for others:{}", who_waits_where()); });
    Fiber* const fiber = std::exchange(current_->fiber, nullptr);
    make_current(*next);
    if (next->fiber == nullptr && !thread_sanitizer) {
      next->fiber = fiber;
      continue;
    }
    if (next->fiber == nullptr) next->fiber = take_fiber();
    free_fibers_[static_cast<std::size_t>(free_count_++)] = fiber;
    tsan_switch(next->tsan);
    fiber->switch_to(*next->fiber, true);
  }
}

// The running thread has reached the end of the kernel.
void Block::leave() {
  tsan_release(done_token_);
  if (at_barrier_ > 0) {
    stop([&] {
      return formatted("__syncthreads without all threads: {} has left the kernel, {} waits at {}", name_of(*current_),
                       name_of(*first_at_barrier_), text_of(first_at_barrier_->line));
    });
  }
  for_lanes(warp().waiting, [&](int other) {
    const Thread& thread = lanes()[other];
    if (holds(thread.request.mask, lane()))
      stop([&] { return formatted("{}, but {} has left the kernel", call_of(thread), name_of(*current_)); });
  });
  warp().gone |= bit(lane());
  if (first_gone_ == nullptr) first_gone_ = current_;
  current_->state = State::gone;
  ++gone_;
  --can_run_;
}

void Block::go_to_main() {
  tsan_switch(main_tsan_);
  current_->fiber->switch_to(main_, true);
  __builtin_unreachable();
}

// ---------------------------------------------------------------------------------------------------------------------
// Waiting for each other

bool Block::barrier(SourceLine line, bool predicate) {
  current_->line = line;
  if (gone_ > 0) {
    stop([&] {
      return formatted("__syncthreads without all threads: {} has left the kernel, {} waits at {}",
                       name_of(*first_gone_), name_of(*current_), text_of(line));
    });
  }
  if (at_barrier_ == 0) first_at_barrier_ = current_;
  if (!same(first_at_barrier_->line, line)) {
    stop([&] {
      return formatted("__syncthreads at different lines: {} waits at {}, {} at {}", name_of(*first_at_barrier_),
                       text_of(first_at_barrier_->line), name_of(*current_), text_of(line));
    });
  }
  void* const token = &barrier_tokens_[barriers_ % 2];
  bool& vote = votes_[barriers_ % 2];
  vote = predicate && (vote || at_barrier_ == 0);
  tsan_release(token);
  ++at_barrier_;
  current_->state = State::at_barrier;
  if (at_barrier_ == count_) release_barrier();
  yield();
  tsan_acquire(token);
  return vote;
}

void Block::release_barrier() {
  for (int n = 0; n < count_; ++n) threads_[static_cast<std::size_t>(n)].state = State::ready;
  can_run_ = count_ + 1;  // yield() subtracts one for the last to arrive
  at_barrier_ = 0;
  ++barriers_;
  cursor_ = count_;
}

std::uint64_t Block::warp_meet(const detail::WarpRequest& request) {
  Thread& self = *current_;
  self.request = request;
  self.line = request.line;
  check_warp();
  void* const token = request.operation == detail::WarpOperation::sync
                          ? &warp_tokens_[static_cast<std::size_t>(self.number / warpSize)][self.warp_syncs++ % 2]
                          : nullptr;
  if (token != nullptr) tsan_release(token);
  self.state = State::in_warp;
  warp().waiting |= bit(lane());
  if ((request.mask & ~warp().waiting) == 0) complete_warp(request.mask);
  yield();
  if (token != nullptr) tsan_acquire(token);
  return self.answer;
}

// The arriving thread is compared with the threads that it waits for, and with the threads that wait for it. If all
// waiting threads are in its mask, one of them represents the others: they were compared when they arrived.
void Block::check_warp() {
  const detail::WarpRequest& mine = current_->request;
  const Warp& own = warp();
  if (!holds(mine.mask, lane()))
    stop([&] { return formatted("{}, which does not hold its own lane {}", call_of(*current_), lane()); });
  for_lanes(mine.mask & ~own.there, [&](int lane) {
    stop([&] { return formatted("{}, but the block has no lane {} there", call_of(*current_), lane); });
  });
  for_lanes(mine.mask & own.gone, [&](int lane) {
    stop([&] { return formatted("{}, but {} has left the kernel", call_of(*current_), name_of(lanes()[lane])); });
  });
  const bool all_of_my_mask = (own.waiting & ~mine.mask) == 0;
  const std::uint32_t first = own.waiting & (~own.waiting + 1);
  for_lanes(all_of_my_mask ? first : own.waiting, [&](int lane) { check_agree(lanes()[lane]); });
  const bool shuffle = mine.operation == detail::WarpOperation::shuffle;
  if (shuffle && (mine.source < 0 || mine.source >= warpSize || !holds(mine.mask, mine.source))) {
    stop([&] { return formatted("{} and reads lane {}, which is not in the mask", call_of(*current_), mine.source); });
  }
}

// Compares with a thread in a warp operation, if either waits for the other.
void Block::check_agree(const Thread& other) {
  const detail::WarpRequest& mine = current_->request;
  const detail::WarpRequest& theirs = other.request;
  if (!holds(mine.mask, other.number % warpSize) && !holds(theirs.mask, lane())) return;
  if (theirs.mask != mine.mask)
    stop([&] { return formatted("masks differ: {}, {}", call_of(other), call_of(*current_)); });
  if (!same(theirs.name, mine.name) || !same(theirs.line, mine.line)) {
    stop([&] {
      return formatted("lanes of one mask meet in different operations: {}, {}", call_of(other), call_of(*current_));
    });
  }
}

// Results are computed for all lanes at once: the first lane to continue may reach its next operation before the last
// has read its result.
void Block::complete_warp(std::uint32_t mask) {
  Thread* const all = lanes();
  if (auto* const work = current_->request.work; work != nullptr) {
    void* registers[warpSize] = {};
    for_lanes(mask, [&](int lane) { registers[lane] = std::bit_cast<void*>(all[lane].request.value); });
    work(registers);
  }
  std::uint64_t ballot = 0;
  for_lanes(mask, [&](int lane) {
    if (all[lane].request.value != 0) ballot |= bit(lane);
  });
  for_lanes(mask, [&](int lane) {
    Thread& thread = all[lane];
    thread.answer =
        thread.request.operation == detail::WarpOperation::shuffle ? all[thread.request.source].request.value : ballot;
    thread.state = State::ready;
    ++can_run_;
  });
  warp().waiting &= ~mask;
}

// ---------------------------------------------------------------------------------------------------------------------
// Shared memory

void* Block::shared_array(const void* site, std::size_t bytes, std::size_t alignment, SourceLine line) {
  for (std::size_t n = 0; n < shared_count_; ++n) {
    if (shared_[n].site == site) return shared_[n].data;
  }
  static_bytes_ += bytes;
  if (static_bytes_ > max_static_shared_bytes || shared_count_ == shared_.size()) {
    stop([&] {
      return formatted("{}: {} bytes of shared memory in {} arrays; a block has {}, more only by SHARED_DYNAMIC",
                       text_of(line), static_bytes_, shared_count_ + 1, max_static_shared_bytes);
    });
  }
  if (static_bytes_ + launch_->shared_bytes > max_shared_bytes(settings_)) {
    stop([&] {
      return formatted("{}: {} bytes of shared memory in arrays beside {} of the launch; a block has {}", text_of(line),
                       static_bytes_, launch_->shared_bytes, max_shared_bytes(settings_));
    });
  }
  void* const data = take_shared(bytes, alignment);
  shared_[shared_count_++] = {site, data, bytes, alignment};
  return data;
}

void Block::off_boundary(std::size_t bytes, SourceLine line) {
  stop([&] {
    return formatted("{} reads or writes {} bytes at once that do not begin at a multiple of {}: {}",
                     name_of(*current_), bytes, bytes, text_of(line));
  });
}

bool Block::delay_copy(const detail::AsyncCopy& copy) {
  if (settings_.delay_streams) copies_[static_cast<std::size_t>(current_->number)].push_back(copy);
  return settings_.delay_streams;
}

bool Block::take_copy(detail::AsyncCopy& copy) {
  auto& own = copies_[static_cast<std::size_t>(current_->number)];
  if (own.empty()) return false;
  copy = own.front();
  own.pop_front();
  return true;
}

void* Block::dynamic_shared_memory() {
  if (dynamic_ == nullptr) dynamic_ = take_shared(launch_->shared_bytes, 16);
  return dynamic_;
}

namespace detail {

bool barrier(SourceLine line, bool predicate) { return Block::own().barrier(line, predicate); }
std::uint64_t warp_meet(const WarpRequest& request) { return Block::own().warp_meet(request); }
int lane_index() { return Block::own().lane(); }
void* shared_array(const void* site, std::size_t bytes, std::size_t alignment, SourceLine line) {
  return Block::own().shared_array(site, bytes, alignment, line);
}
void* dynamic_shared_memory() { return Block::own().dynamic_shared_memory(); }
void off_boundary(std::size_t bytes, SourceLine line) { Block::own().off_boundary(bytes, line); }

}  // namespace detail
}  // namespace tally::cuda_host
