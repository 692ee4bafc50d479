// The errors that the changes of program.cpp leave: 39 % with a learning rate of 1, and 10.5 % if clipping is off as
// well; 33 % without tanh, because the model can then only draw a straight line; 22 % with 8 neurons.
#include <cmath>
#include <vector>

void adam_step(std::vector<double>& w, std::vector<double>& m, std::vector<double>& v, const std::vector<double>& g,
               int n, double lr) {
  const double m_part = 1 - std::pow(0.9, n), v_part = 1 - std::pow(0.999, n);
  for (std::size_t i = 0; i < w.size(); ++i) {
    m[i] = 0.9 * m[i] + 0.1 * g[i];
    v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
    w[i] -= lr * (m[i] / m_part) / (std::sqrt(v[i] / v_part) + 1e-8);
  }
}
