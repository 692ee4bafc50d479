// Compares the memory that work needs with the available memory.
#include "tasks/checks/memory.hpp"

#include <cstdio>
#include <iterator>
#include <vector>

#include "core/device/backend.hpp"

namespace tally {
namespace {

struct Part {
  std::string_view name;
  double bytes;
};

// where: "", or " on the GPU".
void check_fits_in(const std::vector<Part>& parts, const MemoryEstimate& estimate, double available,
                   std::string_view where, std::string_view advice) {
  double total = 0;
  std::string text;
  for (const Part& part : parts) {
    total += part.bytes;
    if (part.bytes > 0) text += formatted("{}{} {}", text.empty() ? "" : ", ", part.name, bytes_text(part.bytes));
  }
  if (total <= available && !estimate.more) return;
  throw DoesNotFit(formatted("[memory] this needs {}{}{} ({}), but there are {}{}; {}",
                             estimate.more      ? "more than "
                             : estimate.at_most ? "up to "
                                                : "about ",
                             bytes_text(total), where, text, bytes_text(available), where, advice));
}

}  // namespace

void check_fits(const MemoryEstimate& estimate, std::string_view advice) {
  std::vector<Part> computed{{"parameters", estimate.parameters},
                             {"gradients", estimate.gradients},
                             {"optimiser", estimate.optimiser},
                             {"activations", estimate.activations}};
  const std::vector<Part> read{{"checkpoint", estimate.checkpoint}, {"data", estimate.data}};
  if (default_device().type == DeviceType::cuda) {
    check_fits_in(computed, estimate, available_memory(default_device()), " on the GPU", advice);
    check_fits_in(read, {.at_most = estimate.at_most}, available_memory(), "", advice);
  } else {
    computed.insert(computed.end(), read.begin(), read.end());
    check_fits_in(computed, estimate, available_memory(), "", advice);
  }
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
