// What ThreadSanitizer must say about OpenMP: with the argument "race" two threads write one variable and it has to be
// reported; without, the same variable is handed over by the barrier at the end of a loop, and silence is right. Both
// fail in their own way when the OpenMP runtime is not known to the sanitizer.
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
