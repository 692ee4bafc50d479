// Exercise 8: write this function. The test shows the expected results.
#include <vector>

// RoPE: x has an even number of elements. Elements i and i + n, with n = half their number, form a pair, which is
// rotated by the angle position * base^(-i/n):  (a, b) -> (a cos - b sin, a sin + b cos).
std::vector<double> rotated(const std::vector<double>& x, double position, double base) { return x; }
