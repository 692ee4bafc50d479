#include "core/ranks.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/error.hpp"

namespace tally {
namespace {

// OpenMPI's ABI: handles are pointers to objects of the library.
struct Mpi {
  int (*init)(int*, char***) = nullptr;
  int (*rank)(void*, int*) = nullptr;
  int (*size)(void*, int*) = nullptr;
  int (*sendrecv)(const void*, int, void*, int, int, void*, int, void*, int, int, void*, void*) = nullptr;
  int (*abort)(void*, int) = nullptr;
  int (*finalize)() = nullptr;
  void* world = nullptr;
  void* byte = nullptr;
};

Mpi mpi;
template <class F>
bool find_symbol(void* handle, const char* name, F& symbol) {
  symbol = reinterpret_cast<F>(dlsym(handle, name));
  return symbol != nullptr;
}

void load_mpi(const std::string& processes) {
  std::string tried;
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);  // its plugins look for its symbols
    if (handle == nullptr) {
      tried += concat("\n  ", dlerror());
      continue;
    }
    if (find_symbol(handle, "MPI_Init", mpi.init) && find_symbol(handle, "MPI_Comm_rank", mpi.rank) &&
        find_symbol(handle, "MPI_Comm_size", mpi.size) && find_symbol(handle, "MPI_Sendrecv", mpi.sendrecv) &&
        find_symbol(handle, "MPI_Abort", mpi.abort) && find_symbol(handle, "MPI_Finalize", mpi.finalize) &&
        find_symbol(handle, "ompi_mpi_comm_world", mpi.world) && find_symbol(handle, "ompi_mpi_byte", mpi.byte)) {
      return;
    }
    tried += concat("\n  ", name, ": not OpenMPI");
    dlclose(handle);
  }
  fail("mpi", "started by mpirun as one of ", processes,
       " processes, and OpenMPI cannot be loaded (libopenmpi3):", tried);
}

}  // namespace

Ranks& Ranks::instance() {
  static Ranks ranks;
  return ranks;
}

const Ranks& Ranks::world() { return instance(); }

const Ranks& Ranks::one() {
  static const Ranks ranks;
  return ranks;
}

// mpirun tells its processes how many there are.
void Ranks::join() {
  const char* const processes = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (processes == nullptr) {
    const char* const others = std::getenv("PMI_SIZE");
    check(others == nullptr || std::string(others) == "1", "mpi", "started as one of ", others == nullptr ? "" : others,
          " processes by an mpirun that is not OpenMPI's");
    return;
  }
  if (std::string(processes) == "1") return;
  load_mpi(processes);
  check(mpi.init(nullptr, nullptr) == 0, "mpi", "MPI_Init failed");
  int rank = 0, size = 1;
  mpi.rank(mpi.world, &rank);
  mpi.size(mpi.world, &size);
  instance().rank_ = rank;
  instance().size_ = size;
}

void Ranks::exchange(std::span<const std::byte> out, std::int64_t to, std::span<std::byte> in,
                     std::int64_t from) const {
  constexpr std::size_t most = std::numeric_limits<int>::max();
  check_internal(out.size() <= most && in.size() <= most, "mpi", "too much to be sent at once");
  constexpr int tag = 1;
  const int status =
      mpi.sendrecv(out.data(), static_cast<int>(out.size()), mpi.byte, static_cast<int>(to), tag, in.data(),
                   static_cast<int>(in.size()), mpi.byte, static_cast<int>(from), tag, mpi.world, nullptr);
  check(status == 0, "mpi", "rank ", rank_, " cannot reach ranks ", to, " and ", from, ": error ", status);
}

void Ranks::share(std::span<std::byte> all, std::span<const std::size_t> begins) const {
  const auto part = [&](std::int64_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    return all.subspan(begins[r], begins[r + 1] - begins[r]);
  };
  for (std::int64_t d = 1; d < size_; ++d) {
    const std::int64_t to = (rank_ + d) % size_, from = (rank_ - d + size_) % size_;
    exchange(part(rank_), to, part(from), from);
  }
}

void Ranks::wait_for_all() const { any(false); }

bool Ranks::any(bool value) const {
  std::vector<std::byte> all(static_cast<std::size_t>(size_));
  std::vector<std::size_t> begins(all.size() + 1);
  for (std::size_t r = 0; r < begins.size(); ++r) begins[r] = r;
  all[static_cast<std::size_t>(rank_)] = std::byte{value};
  share(all, begins);
  return std::ranges::any_of(all, [](std::byte one) { return one != std::byte{0}; });
}

void Ranks::check_same(std::int64_t value, const std::string& what) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  std::vector<std::size_t> begins(all.size() + 1);
  for (std::size_t r = 0; r < begins.size(); ++r) begins[r] = r * sizeof value;
  all[static_cast<std::size_t>(rank_)] = value;
  share(std::as_writable_bytes(std::span(all)), begins);
  for (std::size_t r = 0; r < all.size(); ++r) {
    check(all[r] == all[0], "mpi", what, " is ", all[r], " for rank ", r, " and ", all[0], " for rank 0");
  }
}

template <class T>
void Ranks::add_parts(std::span<T> values, std::int64_t terms) const {
  if (alone()) return;
  std::vector<std::size_t> begins;
  for (std::int64_t r = 0; r <= size_; ++r) {
    begins.push_back(values.size() * static_cast<std::size_t>(r) / static_cast<std::size_t>(size_));
  }
  const auto part = [&](std::int64_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    return values.subspan(begins[r], begins[r + 1] - begins[r]);
  };
  const std::span<T> own = part(rank_);
  std::vector<std::vector<T>> found(static_cast<std::size_t>(size_));
  found[static_cast<std::size_t>(rank_)].assign(own.begin(), own.end());
  for (std::int64_t d = 1; d < size_; ++d) {
    const std::int64_t to = (rank_ + d) % size_, from = (rank_ - d + size_) % size_;
    std::vector<T>& in = found[static_cast<std::size_t>(from)];
    in.resize(own.size());
    exchange(std::as_bytes(part(to)), to, std::as_writable_bytes(std::span(in)), from);
  }
  // Neighbours, then neighbouring pairs, ...; what is left over from the last to the first (TreeSum).
  std::vector<std::pair<std::int64_t, std::vector<T>*>> sums;
  const auto add_last = [&sums] {
    const auto [count, last] = sums.back();
    sums.pop_back();
    sums.back().first += count;
    std::vector<T>& sum = *sums.back().second;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (*last)[i];
  };
  for (std::int64_t term = 0; term < terms; ++term) {
    sums.emplace_back(1, &found[static_cast<std::size_t>(term)]);
    while (sums.size() > 1 && sums[sums.size() - 2].first == sums.back().first) add_last();
  }
  while (sums.size() > 1) add_last();
  std::ranges::copy(*sums.front().second, own.begin());
  for (std::size_t& begin : begins) begin *= sizeof(T);
  share(std::as_writable_bytes(values), begins);
}

void Ranks::add_in_tree(std::span<float> values, std::int64_t terms) const { add_parts(values, terms); }
void Ranks::add_in_tree(std::span<double> values, std::int64_t terms) const { add_parts(values, terms); }

void Ranks::end_all(int code) const {
  if (!alone()) mpi.abort(mpi.world, code);
  std::_Exit(code);
}

void Ranks::leave() {
  if (world().alone()) return;
  instance() = Ranks();
  mpi.finalize();
}

}  // namespace tally
