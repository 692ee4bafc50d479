// When the buckets of a step's gradients can be sent to other ranks: after which part of backward, in processor time.
// overlap_bench [--option=value ...]: flip-flop by the paper's model, or with other options of tally train.
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "core/distributed/gradient_reducer.hpp"
#include "core/error.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/training/tree_sum.hpp"

namespace {

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Sends nothing, and writes down when it would have.
class Recorder final : public tally::GradientReducer {
 public:
  void begin(const tally::Tensor& bucket, std::int64_t) override {
    sent.emplace_back(processor_seconds(), bucket.numel());
  }
  void advance() override {}
  void finish() override {}
  void all_gather(const tally::Tensor&, const std::vector<std::int64_t>&) override {}
  std::vector<std::pair<double, std::int64_t>> sent;
};

void measure(tally::RunConfig& config) {
  const std::unique_ptr<tally::Task> task = config.make_task();
  const std::unique_ptr<tally::SequenceModel> model = config.make_model(*task);
  const tally::Batch batch =
      tally::collate(tally::examples_of(*task, task->splits().front().name, 0, config.run.batch));
  const tally::NamedTensors parameters = model->parameters();
  std::vector<tally::Shape> shapes;
  for (std::size_t i = parameters.size(); i-- > 0;) shapes.push_back(parameters[i].second.shape());
  for (const char* turn : {"first", "second"}) {
    model->clear_gradients();
    Recorder exchange;
    tally::RankSum sum(tally::ProcessGroup::one(), exchange, shapes, config.dtype(), model->device(), 1);
    const double start = processor_seconds();
    const tally::Tensor weight = tally::Tensor::full({1}, 1e-3, config.dtype());
    const tally::TokenLoss found =
        model->loss(batch.tokens, batch.targets, batch.loss_mask, weight, {.training = true});
    const double middle = processor_seconds();
    tally::backward(found.loss, [&](tally::AutogradData& leaf) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].second.autograd().get() != &leaf) continue;
        sum.set(parameters.size() - 1 - i, std::exchange(leaf.gradient, {}));
      }
    });
    const double end = processor_seconds();
    std::printf("%s step: forward %.3f s, backward %.3f s of processor time; buckets are sent after\n", turn,
                middle - start, end - middle);
    for (const auto& [time, elements] : exchange.sent) {
      std::printf("  %5.1f%% of backward: %ld numbers\n", 100 * (time - middle) / (end - middle), long(elements));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    tally::RunConfig config = tally::RunConfig::make("flip-flop", "cope", "paper");
    for (int n = 1; n < argc; ++n) {
      const std::string word = argv[n];
      const std::size_t equals = word.find('=');
      tally::check(word.starts_with("--") && equals != std::string::npos, "bench", "'{}' is not --option=value", word);
      config.set(word.substr(2, equals - 2), word.substr(equals + 1));
    }
    config.validate();
    measure(config);
    return 0;
  } catch (const tally::Error& error) {
    std::fprintf(stderr, "overlap_bench: %s\n", error.what());
    return 1;
  }
}
