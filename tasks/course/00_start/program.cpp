// Chapter 0: the C++ that the course uses, next to the Python that you know.
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

// The argument is a copy.
void append_to_copy(std::vector<double> x) { x.push_back(9); }

// The argument is a reference: another name for the caller's vector.
void append(std::vector<double>& x) { x.push_back(9); }

// A span is an address and a number of elements. It owns nothing, as a slice of a NumPy array.
double sum_of(std::span<const double> x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum;
}

// The compiler writes one version of this function for each type T that is used.
template <class T>
T largest(const std::vector<T>& x) {
  T found = x[0];
  for (const T& value : x) {
    if (value > found) found = value;
  }
  return found;
}

// The second argument is a function.
template <class Condition>
int count_if(std::span<const double> x, Condition condition) {
  int count = 0;
  for (const double value : x) count += condition(value) ? 1 : 0;
  return count;
}

// An object whose destructor, the function with ~, runs at the end of its block.
struct Visit {
  std::string place;
  ~Visit() { std::printf("leaves %s\n", place.c_str()); }
};

int main() {
  std::vector<double> x{1, 2, 3};
  append_to_copy(x);
  std::printf("after append_to_copy: %zu elements\n", x.size());
  append(x);
  std::printf("after append: %zu elements\n", x.size());

  const std::span<const double> part = std::span(x).subspan(1, 2);  // x[1:3]
  std::printf("sum of all: %g, of a part: %g\n", sum_of(x), sum_of(part));

  const std::vector<std::string> words{"apple", "pear", "fig"};
  std::printf("largest: %g and %s\n", largest(x), largest(words).c_str());

  const double limit = 2.5;
  const auto is_large = [limit](double value) { return value > limit; };
  std::printf("more than %g: %d\n", limit, count_if(x, is_large));

  for (std::size_t n = x.size(); n-- > 0;) std::printf("%g ", x[n]);
  std::printf("\n");

  {
    const Visit visit{"a block"};
    std::printf("inside\n");
  }
  std::printf("outside\n");
  return 0;
}
