// Exercise 5: write this function.
#include <cmath>
#include <vector>

// Step n = 1, 2, ... of Adam: updates the means m and v and the parameters w from the gradient g; all have the same
// size. The means decay by 0.9 and 0.999, are divided by 1 - 0.9^n and 1 - 0.999^n, and 1e-8 is added to the square
// root.
void adam_step(std::vector<double>& w, std::vector<double>& m, std::vector<double>& v, const std::vector<double>& g,
               int n, double lr) {}
