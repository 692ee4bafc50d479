// Speed of a tokenizer on one core, in MB of text per second of processor time:
//   tokenizer_bench TOKENIZER FILE...
// It prints the speed of cutting, then of encoding with a table of pieces. The table has seen the text before (warm),
// begins empty (cold), or is missing, so that every piece is new.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/error.hpp"
#include "core/io/reader.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace {

template <class Work>
double mb_per_second(std::size_t bytes, Work&& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const double begin = now();
    work();
    best = std::max(best, 1e-6 * static_cast<double>(bytes) / (now() - begin));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    tally::check(argc >= 3, "bench", "tokenizer_bench TOKENIZER FILE...");
    const tally::TokenizerParts parts = tally::read_tokenizer(argv[1]);
    const tally::Tokenizer tokenizer(parts);
    const tally::SplitPattern pattern(parts.steps);
    std::printf("%-28s %9s %9s %9s %9s %9s\n", "MB/s", "MB", "cut", "warm", "cold", "no table");
    for (int file = 2; file < argc; ++file) {
      const std::string text = tally::read_whole_file(argv[file], std::uint64_t{1} << 32);
      std::vector<std::int32_t> ids;
      std::size_t pieces = 0;
      const double cut = mb_per_second(
          text.size(), [&] { tally::Splitter(pattern).split(text, [&](std::string_view) { ++pieces; }); });
      tally::Encoder warm(tokenizer), none(tokenizer, 0);
      warm.encode(text, ids);
      const auto encode = [&](tally::Encoder& encoder) {
        return mb_per_second(text.size(), [&] {
          ids.clear();
          encoder.encode(text, ids);
        });
      };
      const double cold = mb_per_second(text.size(), [&] {
        ids.clear();
        tally::Encoder(tokenizer).encode(text, ids);
      });
      const std::string name = argv[file];
      std::printf("%-28s %9.1f %9.1f %9.1f %9.1f %9.1f\n", name.substr(name.rfind('/') + 1).c_str(),
                  1e-6 * static_cast<double>(text.size()), cut, encode(warm), cold, encode(none));
    }
  } catch (const tally::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
