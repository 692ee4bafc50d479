// The memory estimate for large vocabularies.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tasks/checks/estimate.hpp"
#include "tests/tasks/measured_peak.hpp"

namespace tally {
namespace estimate_vocabulary_test {

using Settings = std::vector<std::pair<std::string, std::string>>;

// The logits are never materialised as a whole.
TEST(EstimateOfVocabularies, MemoryOfALargeVocabularyIsThatOfTheRun) {
  const auto large = [](const Settings& more) {
    RunConfig config = RunConfig::make("mqar", "alibi", "quick");
    Settings all{{"task.vocabulary", "8192"}, {"task.length", "128"}, {"model.width", "16"}, {"model.layers", "1"}};
    all.insert(all.end(), more.begin(), more.end());
    for (const auto& [name, value] : all) config.set(name, value);
    return config;
  };
  for (const Settings& settings : {Settings{{"batch", "24"}, {"eval-batch", "24"}},
                                   {{"batch", "24"}, {"micro-batch", "7"}, {"eval-batch", "8"}, {"dtype", "f64"}},
                                   {{"batch", "24"}, {"eval-batch", "24"}, {"model.tied", "true"}}}) {
    testing::expect_exact(large(settings), settings.back().first);
  }
  // Twice the sequences add activations of 16 numbers a token, not logits of 8,192.
  const auto activations = [&](const char* batch) {
    const RunConfig config = large({{"batch", batch}, {"eval-batch", "1"}});
    return estimate_training(config, *config.make_task()).activations;
  };
  EXPECT_LT(activations("64") - activations("32"), 32 * 128 * 8192);
}

}  // namespace estimate_vocabulary_test
}  // namespace tally
