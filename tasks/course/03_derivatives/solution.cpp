// A thousand variables need a thousand evaluations: each has the slope by one chosen variable.
#include <cmath>

struct Dual {
  double value;
  double slope;
};

Dual product(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }

Dual quotient(Dual a, Dual b) {
  const double value = a.value / b.value;
  return {value, (a.slope - value * b.slope) / b.value};
}

Dual hyperbolic_tangent(Dual a) {
  const double value = std::tanh(a.value);
  return {value, (1 - value * value) * a.slope};
}
