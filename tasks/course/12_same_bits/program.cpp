// Chapter 12: the same bits. Random numbers as a function, a sum in a fixed tree, and training that is interrupted.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/io/safetensors.hpp"
#include "core/math/random.hpp"
#include "nn/optimizer.hpp"

using tally::Tensor;

// Neighbours are added first, then neighbouring pairs, and so on: the order depends on the number of terms only.
float tree_sum(std::vector<float> terms) {
  while (terms.size() > 1) {
    std::vector<float> sums;
    for (std::size_t n = 0; n + 1 < terms.size(); n += 2) sums.push_back(terms[n] + terms[n + 1]);
    if (terms.size() % 2 == 1) sums.push_back(terms.back());
    terms = sums;
  }
  return terms[0];
}

float sum_in_order(std::vector<float> terms) { return std::accumulate(terms.begin(), terms.end(), 0.0F); }

// A table of logits learns which of ten tokens follows which.
struct Run {
  Tensor table = Tensor::zeros({10, 10});
  std::unique_ptr<tally::Optimizer> optimizer;
  Run() {
    tally::set_requires_grad(table);
    optimizer = tally::Optimizer::make({}, {{"table", table}});
  }
  // The batch of a step depends on its number, not on the steps before it.
  void train(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t n = first; n <= last; ++n) {
      tally::Rng random({.seed = 7, .stream = tally::stream_of("batches"), .step = n});
      std::vector<std::int32_t> tokens;
      for (int t = 0; t < 65; ++t) tokens.push_back(static_cast<std::int32_t>(random.below(10)));
      const Tensor all = Tensor::from(tokens, {65});
      const Tensor logits = tally::embedding(table, tally::slice(all, 0, 0, 64));
      tally::backward(tally::cross_entropy(logits, tally::slice(all, 0, 1, 65)));
      optimizer->step();
    }
  }

  // All that the next step needs: Adam's two averages and the parameter.
  tally::NamedTensors state() const { return {optimizer->state()[0], optimizer->state()[1], {"table", table}}; }
};

void compare(const char* name, const Run& a, const Run& b) {
  std::printf("%s: %s bits\n", name, a.table.to_vector<float>() == b.table.to_vector<float>() ? "the same" : "other");
}

int main() {
  const tally::RandomStream stream{.seed = 1, .stream = tally::stream_of("dropout"), .step = 5};
  for (const int element : {0, 1, 1000000, 1, 0})
    std::printf("element %7d: %08x\n", element, stream.bits(static_cast<std::uint64_t>(element)));

  std::vector<float> terms;
  for (int n = 1; n <= 1024; ++n) terms.push_back(1.0F / static_cast<float>(n));
  for (float (*const sum)(std::vector<float>) : {sum_in_order, tree_sum}) {
    const float halves = sum({terms.begin(), terms.begin() + 512}) + sum({terms.begin() + 512, terms.end()});
    std::printf("at once %.7f, as two halves %.7f\n", static_cast<double>(sum(terms)), static_cast<double>(halves));
  }
  Run whole, stopped, resumed, forgetful;
  whole.train(1, 12);
  stopped.train(1, 7);
  const std::string path = std::filesystem::temp_directory_path() / ("course-12-" + std::to_string(getpid()));
  tally::write_safetensors(path, stopped.state());
  tally::NamedTensors saved;
  const tally::SafetensorsFile file = tally::SafetensorsFile::open(path);
  for (const auto& entry : file.entries()) saved.emplace_back(entry.name, file.read(entry.name));
  std::filesystem::remove(path);
  tally::load_tensors(resumed.state(), saved);
  resumed.optimizer->set_count(7);
  resumed.train(8, 12);
  compare("stopped after step 7 and resumed", whole, resumed);
  forgetful.table.copy_from(stopped.table);
  forgetful.optimizer->set_count(7);
  forgetful.train(8, 12);
  compare("resumed without Adam's averages", whole, forgetful);
}
