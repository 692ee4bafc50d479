#include <bit>
#include <cmath>
#include <vector>

double permutation_p(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> all = a;
  all.insert(all.end(), b.begin(), b.end());
  // Bit n of `choice` is set if element n belongs to the first group.
  const auto distance = [&](unsigned choice) {
    double first = 0, second = 0;
    for (std::size_t n = 0; n < all.size(); ++n) ((choice >> n & 1U) != 0 ? first : second) += all[n];
    return std::abs(first / static_cast<double>(a.size()) - second / static_cast<double>(b.size()));
  };
  const double real = distance((1U << a.size()) - 1);
  int choices = 0, as_large = 0;
  for (unsigned choice = 0; choice < 1U << all.size(); ++choice) {
    if (static_cast<std::size_t>(std::popcount(choice)) != a.size()) continue;
    ++choices;
    if (distance(choice) >= real - 1e-9) ++as_large;
  }
  return static_cast<double>(as_large) / choices;
}
