#include <algorithm>
#include <array>
#include <cmath>

using Group = std::array<double, 3>;

Group merged(const Group& a, const Group& b) {
  const double m = std::max(a[0], b[0]);
  if (std::isinf(m)) return a;  // no keys at all
  const double share_a = a[1] * std::exp(a[0] - m), share_b = b[1] * std::exp(b[0] - m), z = share_a + share_b;
  return {m, z, (share_a * a[2] + share_b * b[2]) / z};
}
