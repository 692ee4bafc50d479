// Exercise 10: write this function. The test shows the expected results.
#include <array>
#include <cmath>

// The result of a softmax over a group of keys: the largest score M, the sum Z of e^(s_j - M), and the mean of the
// values with the weights e^(s_j - M) / Z. A group without keys has M = -infinity, Z = 0 and mean 0.
using Group = std::array<double, 3>;

// The result over the keys of both groups, from their results only.
Group merged(const Group& a, const Group& b) { return {}; }
