// Memory that work needs against memory that there is.
#include "tasks/memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>

namespace tally {
namespace {

// The number in a file of the system, or nothing that limits.
double limit_in(const char* path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : std::numeric_limits<double>::infinity();
}

}  // namespace

double available_memory() {
  double bytes =
      std::min(limit_in("/sys/fs/cgroup/memory.max"), limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  rlimit own{};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) {
    bytes = std::min(bytes, static_cast<double>(own.rlim_cur));
  }
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    double kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return std::min(bytes, 1024 * kibibytes);
    std::getline(file, unit);
  }
  return bytes;
}

void check_fits(const MemoryEstimate& estimate, std::string_view advice) {
  const double available = available_memory();
  if (estimate.total() <= available) return;
  std::string parts;
  const auto add = [&parts](std::string_view name, double bytes) {
    if (bytes > 0) parts += concat(parts.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  };
  add("parameters", estimate.parameters);
  add("gradients", estimate.gradients);
  add("optimiser", estimate.optimiser);
  add("activations", estimate.activations);
  add("checkpoint", estimate.checkpoint);
  add("data", estimate.data);
  throw DoesNotFit(concat("[memory] this needs about ", bytes_text(estimate.total()), " (", parts, "), but there are ",
                          bytes_text(available), "; ", advice));
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) bytes /= 1024, ++unit;
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %s", bytes, units[unit]);
  return text;
}

}  // namespace tally
