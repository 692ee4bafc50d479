// OpenMPI, loaded while the program runs and where mpirun started it alone, so that a program that was built without
// it, or starts without it, is the same. Its ABI is understood (Debian's libopenmpi3); another MPI is refused.
#pragma once

#include <cstdint>
#include <memory>

#include "core/transport.hpp"

namespace tally::mpi {

// How many processes mpirun says that it started; 1 where it says nothing. Throws Error where they are several of an
// mpirun that is not OpenMPI's.
std::int64_t started_processes();
// How many processes Slurm's srun started, this one among them, without an mpirun by which they would know of each
// other; 1 where it did not. A batch script is not started by srun, however many tasks its job has.
std::int64_t started_by_srun();
// The number of this one among them.
std::int64_t own_number_of_srun();
// The number of this one, and among those on the same machine, as mpirun tells them.
std::int64_t own_rank();
std::int64_t own_rank_on_machine();

// Loads the library and joins the others; once. Throws Error where it cannot be loaded.
std::unique_ptr<Transport> join(std::int64_t& rank, std::int64_t& ranks);
// At the end of a program that did not fail.
void leave();

}  // namespace tally::mpi
