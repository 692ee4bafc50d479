// Exercise 9: write this function. The test shows the expected results.
#include <vector>

// The position terms of one query for all keys j <= i. gates[j] is g_ij, from the oldest key to the query's own token,
// which is the last one. table[n] is z_i[n], n = 0 .. P. The result has one term for each key.
std::vector<double> position_terms(const std::vector<double>& gates, const std::vector<double>& table) { return {}; }
