#include <algorithm>
#include <cmath>
#include <vector>

std::vector<double> position_terms(const std::vector<double>& gates, const std::vector<double>& table) {
  std::vector<double> terms(gates.size());
  const std::size_t last = table.size() - 1;
  double position = 0;
  for (std::size_t j = gates.size(); j-- > 0;) {
    position += gates[j];
    const double c = std::min(position, static_cast<double>(last)), w = c - std::floor(c);
    const auto f = static_cast<std::size_t>(c);
    terms[j] = (1 - w) * table[f] + w * table[std::min(f + 1, last)];
  }
  return terms;
}
