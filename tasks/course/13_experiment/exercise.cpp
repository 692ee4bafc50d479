// Exercise 13: write this function. The test shows the expected results.
#include <vector>

// The permutation test. If a and b came from the same distribution, any a.size() of all the numbers could have been a.
// Returns the share of these choices, the real one included, whose means are at least as far apart as those of a and b.
// Distances that differ by less than 1e-9 count as equal.
double permutation_p(const std::vector<double>& a, const std::vector<double>& b) { return 0; }
