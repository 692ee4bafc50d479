#include "tasks/data/batch.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/math/random.hpp"

namespace tally {

Batch Batch::to(Device device) const {
  return {tokens.to(device), targets.to(device), loss_mask.to(device), score_mask.to(device), keys, starts};
}

std::vector<Batch> Batch::parts(std::int64_t sequences) const {
  std::vector<Batch> parts;
  const std::int64_t count = tokens.size(0), length = tokens.size(1);
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = sequences > 0 ? std::min(begin + sequences, count) : count;
    const auto rows = [&](const Tensor& x) { return x.detached_slice(0, begin, end); };
    parts.push_back({rows(tokens), rows(targets), rows(loss_mask), rows(score_mask)});
    if (!keys.empty()) parts.back().keys.assign(keys.begin() + begin * length, keys.begin() + end * length);
    if (!starts.empty()) parts.back().starts.assign(starts.begin() + begin, starts.begin() + end);
  }
  return parts;
}

Batch Batch::without_values(std::int64_t sequences, std::int64_t length, Device device) {
  const auto make = [&](DType dtype) { return Tensor::empty({sequences, length}, dtype, device); };
  return {make(DType::i32), make(DType::i32), make(DType::boolean), make(DType::boolean)};
}

Batch collate(const std::vector<Example>& examples) {
  check(!examples.empty(), "batch", "no examples");
  std::size_t length = 0;
  for (const Example& example : examples) length = std::max(length, example.tokens.size());
  const Shape shape{static_cast<std::int64_t>(examples.size()), static_cast<std::int64_t>(length)};
  Batch batch{Tensor::zeros(shape, DType::i32), Tensor::zeros(shape, DType::i32), Tensor::zeros(shape, DType::boolean),
              Tensor::zeros(shape, DType::boolean)};
  auto* tokens = batch.tokens.span<std::int32_t>().data();
  auto* targets = batch.targets.span<std::int32_t>().data();
  auto* loss_mask = batch.loss_mask.span<bool>().data();
  auto* score_mask = batch.score_mask.span<bool>().data();
  if (std::ranges::any_of(examples, [](const Example& example) { return !example.starts.empty(); })) {
    for (const Example& example : examples) batch.starts.push_back(example.starts);
  }
  for (const Example& example : examples) {
    if (!example.keys.empty()) {
      batch.keys.insert(batch.keys.end(), example.keys.begin(), example.keys.end());
      batch.keys.resize(batch.keys.size() + length - example.keys.size());
    }
    std::copy(example.tokens.begin(), example.tokens.end(), tokens);
    std::copy(example.targets.begin(), example.targets.end(), targets);
    std::transform(example.loss_mask.begin(), example.loss_mask.end(), loss_mask, [](auto m) { return m != 0; });
    std::transform(example.score_mask.begin(), example.score_mask.end(), score_mask, [](auto m) { return m != 0; });
    tokens += length, targets += length, loss_mask += length, score_mask += length;
  }
  return batch;
}

std::vector<Example> examples_of(const Task& task, std::string_view split, std::int64_t begin, std::int64_t end) {
  std::vector<Example> examples;
  for (std::int64_t index = begin; index < end; ++index) examples.push_back(task.example(split, index));
  return examples;
}

std::vector<std::int64_t> random_order(std::int64_t count, Rng& rng) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[rng.below(static_cast<std::uint32_t>(i))]);
  }
  return order;
}

TrainingOrder::TrainingOrder(const Split& split, std::int64_t batch, std::uint64_t seed)
    : count_(split.count), batch_(batch), seed_(seed) {
  check(batch > 0, "batch", "the batch must hold at least one sequence");
}

std::int64_t TrainingOrder::seen_by(std::int64_t steps) const {
  if (count_ == 0) return steps * batch_;
  const std::int64_t steps_per_epoch = (count_ + batch_ - 1) / batch_;
  return steps / steps_per_epoch * count_ + steps % steps_per_epoch * batch_;
}

std::vector<std::int64_t> TrainingOrder::after(std::int64_t seen) {
  std::vector<std::int64_t> result;
  if (count_ == 0) {
    result.resize(static_cast<std::size_t>(batch_));
    std::iota(result.begin(), result.end(), seen);
    return result;
  }
  const std::int64_t epoch = seen / count_, begin = seen % count_;
  const std::int64_t end = std::min(begin + batch_, count_);
  if (epoch != epoch_) {
    Rng rng({seed_, stream_of("training order"), static_cast<std::uint32_t>(epoch)});
    order_ = random_order(count_, rng);
    epoch_ = epoch;
  }
  result.assign(order_.begin() + begin, order_.begin() + end);
  return result;
}

Batch batch_of(const Task& task, const std::vector<std::int64_t>& indices) {
  std::vector<Example> examples;
  for (const std::int64_t index : indices) examples.push_back(task.example(task.splits().front().name, index));
  return collate(examples);
}

}  // namespace tally
