// Chapter 13: an experiment. Mean, standard deviation and Welch's t test of error rates over three seeds.
#include <cmath>
#include <cstdio>
#include <vector>

// Error rates in percent of seeds 1, 2 and 3: flip-flop, the sparse test set (runs of tests/results/flip-flop.md).
const std::vector<double> absolute{14.899, 19.394, 14.601}, rope{11.522, 2.409, 3.924}, cope{0, 0, 0};

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

// The square of the standard deviation, from the squared distances to the mean. One is lost, as the mean comes from the
// same numbers.
double variance(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += (value - mean(x)) * (value - mean(x));
  return sum / static_cast<double>(x.size() - 1);
}

struct Welch {
  double t, degrees;
};

// The difference of two means in units of its own standard deviation, and the degrees of freedom.
Welch welch(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double u = variance(a) / n, v = variance(b) / m;
  return {(mean(a) - mean(b)) / std::sqrt(u + v), (u + v) * (u + v) / (u * u / (n - 1) + v * v / (m - 1))};
}

// The probability of a |t| at least as large if the means are equal: the area under both tails of Student's density,
// by Simpson's rule between them.
double probability(const Welch& w) {
  const auto density = [&](double x) {
    return std::exp(std::lgamma((w.degrees + 1) / 2) - std::lgamma(w.degrees / 2)) /
           std::sqrt(w.degrees * std::acos(-1.0)) * std::pow(1 + x * x / w.degrees, -(w.degrees + 1) / 2);
  };
  const double end = std::abs(w.t);
  const int steps = 1000;
  double inside = 0;
  for (int n = 0; n <= steps; ++n) {
    const double factor = n == 0 || n == steps ? 1 : n % 2 == 1 ? 4 : 2;
    inside += factor * density(end * n / steps) * end / steps / 3;
  }
  return 1 - 2 * inside;
}

void describe(const char* name, const std::vector<double>& x) {
  std::printf("%-9s %6.2f %6.2f %6.2f   mean %5.2f, standard deviation %.2f\n", name, x[0], x[1], x[2], mean(x),
              std::sqrt(variance(x)));
}

void compare(const char* name, const std::vector<double>& a, const std::vector<double>& b) {
  const Welch w = welch(a, b);
  std::printf("%-18s t = %4.2f, degrees of freedom %.1f, p = %.3f\n", name, w.t, w.degrees, probability(w));
}

int main() {
  describe("absolute", absolute);
  describe("rope", rope);
  describe("cope", cope);
  std::printf("\n");
  compare("absolute - cope", absolute, cope);
  compare("absolute - rope", absolute, rope);
  compare("rope - cope", rope, cope);

  // As if three more seeds had given the same numbers.
  std::vector<double> six_rope = rope, six_cope = cope;
  six_rope.insert(six_rope.end(), rope.begin(), rope.end());
  six_cope.insert(six_cope.end(), cope.begin(), cope.end());
  compare("six seeds each", six_rope, six_cope);
  return 0;
}
