// ThreadSanitizer must understand OpenMP. With the argument "race" two threads write one variable, which it must
// report. Without it, the barrier at the end of a loop hands the variable over, and it must report nothing. Both fail
// if the sanitizer does not know the OpenMP runtime.
#include <cstring>

int main(int argc, char** argv) {
  const bool race = argc > 1 && std::strcmp(argv[1], "race") == 0;
  int shared = 0;
  for (int round = 0; round < 100; ++round) {
#pragma omp parallel for schedule(static) num_threads(2)
    for (int i = 0; i < 2; ++i) {
      if (race || i == round % 2) {
        shared += 1;
      }
    }
  }
  return shared > 0 ? 0 : 1;
}
