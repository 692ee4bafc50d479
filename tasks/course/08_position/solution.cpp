#include <cmath>
#include <vector>

std::vector<double> rotated(const std::vector<double>& x, double position, double base) {
  std::vector<double> y(x.size());
  const std::size_t n = x.size() / 2;
  for (std::size_t i = 0; i < n; ++i) {
    const double angle = position * std::pow(base, -static_cast<double>(i) / static_cast<double>(n));
    y[i] = x[i] * std::cos(angle) - x[i + n] * std::sin(angle);
    y[i + n] = x[i] * std::sin(angle) + x[i + n] * std::cos(angle);
  }
  return y;
}
