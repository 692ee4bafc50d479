// The same bits as the three loops? Not always: a sum that is multiplied by a factor is rounded once more.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

std::vector<double> online_softmax(const std::vector<double>& x) {
  double m = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double value : x) {
    const double larger = std::max(m, value);
    sum = sum * std::exp(m - larger) + std::exp(value - larger);
    m = larger;
  }
  std::vector<double> y;
  for (const double value : x) y.push_back(std::exp(value - m) / sum);
  return y;
}
