// Exercise 0: write this function. check.cpp has its test.
#include <span>

// The mean of the elements of x; 0 if there are none.
double mean_of(std::span<const double> x) { return -1; }
