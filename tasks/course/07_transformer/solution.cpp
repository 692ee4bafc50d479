#include <cstdint>
#include <vector>

#include "nn/model.hpp"

std::vector<std::int32_t> continued(tally::SequenceModel& model, std::vector<std::int32_t> prompt, int count) {
  tally::GenerationState state;
  tally::Tensor news = tally::Tensor::from(prompt, {1, std::ssize(prompt)});
  for (int n = 0; n < count; ++n) {
    const tally::Tensor logits = model.step(news, state);
    prompt.push_back(static_cast<std::int32_t>(tally::argmax(tally::select(logits, 1, logits.size(1) - 1)).item()));
    news = tally::Tensor::from(std::vector<std::int32_t>{prompt.back()}, {1, 1});
  }
  return prompt;
}
