// Exercise 4: write this operation, with a derivative of its own. `cube` in program.cpp shows the form.
#include <tally/tally.hpp>

// y = x sigmoid(x), elementwise. Records one node.
tally::Tensor swish(const tally::Tensor& x) { return x; }
