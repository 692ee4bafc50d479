#include "core/distributed/mpi.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace tally::mpi {
namespace {

// OpenMPI's ABI: handles are pointers to objects of the library.
struct Library {
  int (*init)(int*, char***) = nullptr;
  int (*rank)(void*, int*) = nullptr;
  int (*size)(void*, int*) = nullptr;
  int (*isend)(const void*, int, void*, int, int, void*, void**) = nullptr;
  int (*irecv)(void*, int, void*, int, int, void*, void**) = nullptr;
  int (*testall)(int, void**, int*, void*) = nullptr;
  int (*waitall)(int, void**, void*) = nullptr;
  int (*abort)(void*, int) = nullptr;
  int (*finalize)() = nullptr;
  void* world = nullptr;
  void* byte = nullptr;
  void* no_request = nullptr;
};

Library library;

template <class F>
bool find_symbol(void* handle, const char* name, F& symbol) {
  symbol = reinterpret_cast<F>(dlsym(handle, name));
  return symbol != nullptr;
}

bool find_all(void* handle) {
  return find_symbol(handle, "MPI_Init", library.init) && find_symbol(handle, "MPI_Comm_rank", library.rank) &&
         find_symbol(handle, "MPI_Comm_size", library.size) && find_symbol(handle, "MPI_Isend", library.isend) &&
         find_symbol(handle, "MPI_Irecv", library.irecv) && find_symbol(handle, "MPI_Testall", library.testall) &&
         find_symbol(handle, "MPI_Waitall", library.waitall) && find_symbol(handle, "MPI_Abort", library.abort) &&
         find_symbol(handle, "MPI_Finalize", library.finalize) &&
         find_symbol(handle, "ompi_mpi_comm_world", library.world) &&
         find_symbol(handle, "ompi_mpi_byte", library.byte) &&
         find_symbol(handle, "ompi_request_null", library.no_request);
}

void load(std::int64_t processes) {
  std::string tried;
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);  // its plugins look for its symbols
    if (handle == nullptr) {
      tried += formatted("\n  {}", dlerror());
      continue;
    }
    if (find_all(handle)) return;
    tried += formatted("\n  {}: not OpenMPI", name);
    dlclose(handle);
  }
  fail("mpi", "started by mpirun as one of {} processes, and OpenMPI cannot be loaded (libopenmpi3):{}", processes,
       tried);
}

// The value of an environment variable; 0 if it is not set or is not a number.
std::int64_t number_in(const char* variable) {
  const char* const value = std::getenv(variable);
  const std::string_view text = value == nullptr ? "" : value;
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// MPI errors end all processes inside MPI, which prints the reason: the default handler is MPI_ERRORS_ARE_FATAL.
class Mpi final : public Transport {
 public:
  Request send(std::span<const std::byte> bytes, std::int64_t to, int tag) override {
    void* request = nullptr;
    library.isend(bytes.data(), count_of(bytes.size()), library.byte, static_cast<int>(to), tag, library.world,
                  &request);
    return request;
  }

  Request receive(std::span<std::byte> bytes, std::int64_t from, int tag) override {
    void* request = nullptr;
    library.irecv(bytes.data(), count_of(bytes.size()), library.byte, static_cast<int>(from), tag, library.world,
                  &request);
    return request;
  }

  bool arrived(std::span<Request> requests) override {
    int all = 0;
    show(requests);
    library.testall(static_cast<int>(requests.size()), requests.data(), &all, nullptr);
    hide(requests);
    return all != 0;
  }

  void wait(std::span<Request> requests) override {
    show(requests);
    library.waitall(static_cast<int>(requests.size()), requests.data(), nullptr);
    hide(requests);
  }

  [[noreturn]] void abort_all(int code) override {
    library.abort(library.world, code);
    std::_Exit(code);
  }

 private:
  static int count_of(std::size_t bytes) {
    check_internal(bytes <= std::numeric_limits<int>::max(), "mpi", "too much to be sent at once");
    return static_cast<int>(bytes);
  }
  // OpenMPI marks a finished request by an object of the library; here it is null.
  static void show(std::span<Request> requests) {
    for (Request& request : requests) request = request == nullptr ? library.no_request : request;
  }
  static void hide(std::span<Request> requests) {
    for (Request& request : requests) request = request == library.no_request ? nullptr : request;
  }
};

}  // namespace

std::int64_t started_processes() {
  if (const std::int64_t processes = number_in("OMPI_COMM_WORLD_SIZE"); processes > 0) return processes;
  const std::int64_t others = number_in("PMI_SIZE");  // also set by srun
  check(others <= 1 || others == started_by_srun(), "mpi",
        "started as one of {} processes by an mpirun that is not OpenMPI's", others);
  return 1;
}

std::int64_t started_by_srun() {
  if (number_in("OMPI_COMM_WORLD_SIZE") > 0) return 1;
  return std::max<std::int64_t>(1, number_in("SLURM_STEP_NUM_TASKS"));
}

std::int64_t own_number_of_srun() { return number_in("SLURM_PROCID"); }

std::int64_t own_rank() { return number_in("OMPI_COMM_WORLD_RANK"); }
std::int64_t own_rank_on_machine() { return number_in("OMPI_COMM_WORLD_LOCAL_RANK"); }

std::unique_ptr<Transport> join(std::int64_t& rank, std::int64_t& ranks) {
  load(started_processes());
  check(library.init(nullptr, nullptr) == 0, "mpi", "MPI_Init failed");
  int own = 0, all = 1;
  library.rank(library.world, &own);
  library.size(library.world, &all);
  rank = own;
  ranks = all;
  return std::make_unique<Mpi>();
}

void leave() { library.finalize(); }

}  // namespace tally::mpi
