// OpenMPI, loaded at run time and only if mpirun started the program. So a program does not need OpenMPI to build or to
// start. It must have the ABI of Debian's libopenmpi3; another MPI is refused.
#pragma once

#include <cstdint>
#include <memory>

#include "core/distributed/transport.hpp"

namespace tally::mpi {

// The number of processes that mpirun reports to have started; 1 if it reports nothing. Throws Error if there are
// several and the mpirun is not OpenMPI's.
std::int64_t started_processes();
// The number of processes that Slurm's srun started, including this one, without an mpirun that connects them; 1 if
// there was no srun. A batch script is not started by srun, however many tasks its job has.
std::int64_t started_by_srun();
// The number of this one among them.
std::int64_t own_number_of_srun();
// The rank of this process, and its rank among those on the same machine, as mpirun reports them.
std::int64_t own_rank();
std::int64_t own_rank_on_machine();

// Loads the library and joins the process group; once. Throws Error if the library cannot be loaded.
std::unique_ptr<Transport> join(std::int64_t& rank, std::int64_t& ranks);
// At the end of a program that did not fail.
void leave();

}  // namespace tally::mpi
