#include <span>

double mean_of(std::span<const double> x) {
  if (x.empty()) return 0;
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}
