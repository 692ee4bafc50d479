#include "tasks/data/batch.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/math/random.hpp"
#include "nn/transformer.hpp"

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

namespace {

// A text within a batch.
struct Stretch {
  std::int64_t begin = 0, length = 0;  // its first token, counted through all sequences
};

std::vector<Stretch> stretches_of(const Batch& batch) {
  const std::int64_t length = batch.tokens.size(1);
  std::vector<Stretch> stretches;
  for (std::size_t row = 0; row < batch.starts.size(); ++row) {
    std::int64_t begin = 0;
    const auto take = [&](std::int64_t end) {
      check_internal(begin < end && end <= length, "batch", "a text begins at {} of {}", end, length);
      stretches.push_back({static_cast<std::int64_t>(row) * length + begin, end - begin});
      begin = end;
    };
    for (const std::int32_t start : batch.starts[row]) take(start);
    take(length);
  }
  return stretches;
}

// Whether the tensor has no values that could be read.
bool only_counted(const Tensor& x) { return x.device().type == DeviceType::meta; }

// Elements of x [B T] at these places; 0 for padding.
template <class T>
Tensor gathered(const Tensor& x, const std::vector<std::int64_t>& sources, std::int64_t nothing) {
  Tensor result = Tensor::zeros({static_cast<std::int64_t>(sources.size())}, x.dtype(), x.device());
  if (only_counted(x)) return result;
  const std::span<T> from = x.span<T>(), to = result.span<T>();
  for (std::size_t n = 0; n < sources.size(); ++n) {
    if (sources[n] != nothing) to[n] = from[static_cast<std::size_t>(sources[n])];
  }
  return result;
}

// The inverse, with 0 at places that no source has.
template <class T>
Tensor scattered(const Tensor& x, const std::vector<std::int64_t>& sources, std::int64_t nothing, const Shape& shape) {
  Tensor result = Tensor::zeros(shape, x.dtype(), x.device());
  if (only_counted(x)) return result;
  const std::span<T> from = x.span<T>(), to = result.span<T>();
  for (std::size_t n = 0; n < sources.size(); ++n) {
    if (sources[n] != nothing) to[static_cast<std::size_t>(sources[n])] = from[n];
  }
  return result;
}

}  // namespace

SequenceParts::SequenceParts(const Batch& batch, std::int64_t at_once) : shape_(batch.tokens.shape()) {
  const std::int64_t sequences = shape_[0], length = shape_[1];
  if (at_once == 0) at_once = sequences;
  if (!batch.starts.empty()) {
    take_texts(batch, at_once);
    return;
  }
  for (std::int64_t begin = 0; begin < sequences; begin += at_once) {
    parts_.push_back({begin * length, std::min(at_once, sequences - begin), length, begin});
  }
  const auto in_a_row = [&](const Tensor& x) { return x.detached_reshape({shape_.numel()}); };
  tokens = in_a_row(batch.tokens), targets = in_a_row(batch.targets), loss_mask = in_a_row(batch.loss_mask);
}

void SequenceParts::take_texts(const Batch& batch, std::int64_t at_once) {
  separate_ = true;
  std::vector<Stretch> texts = stretches_of(batch);
  std::ranges::stable_sort(texts, std::ranges::greater{}, &Stretch::length);
  const std::int64_t most_tokens = at_once * shape_[1];
  std::int64_t drawn = 0;  // random numbers per pair of tokens that earlier parts use: the maximum over all kinds
  for (std::size_t begin = 0, end = 0; begin < texts.size(); begin = end) {
    const std::int64_t length = texts[begin].length, most_rows = std::max<std::int64_t>(1, most_tokens / length);
    std::int64_t sequence = (drawn + length * length - 1) / (length * length);
    const auto belongs = [&](std::size_t text) { return text < texts.size() && 2 * texts[text].length > length; };
    while (belongs(end)) {
      std::int64_t rows = 0;
      for (; rows < most_rows && belongs(end); ++rows, ++end) {
        for (std::int64_t t = 0; t < length; ++t) {
          sources_.push_back(t < texts[end].length ? texts[end].begin + t : filled_up);
        }
      }
      parts_.push_back({parts_.empty() ? 0 : parts_.back().end(), rows, length, sequence});
      sequence += rows;
    }
    drawn = sequence * length * length;
  }
  tokens = gathered<std::int32_t>(batch.tokens, sources_, filled_up);
  targets = gathered<std::int32_t>(batch.targets, sources_, filled_up);
  loss_mask = gathered<bool>(batch.loss_mask, sources_, filled_up);
}

Tensor SequenceParts::positions() const {
  Tensor positions = Tensor::zeros(tokens.shape(), DType::i32, tokens.device());
  if (only_counted(positions)) return positions;
  const std::span<std::int32_t> places = positions.span<std::int32_t>();
  for (std::size_t n = 0; n < sources_.size(); ++n) {
    if (sources_[n] != filled_up) places[n] = static_cast<std::int32_t>(sources_[n] % shape_[1]);
  }
  return positions;
}

Tensor SequenceParts::put_back(const Tensor& computed) const {
  if (!separate_) return computed.detached_reshape(shape_);
  return computed.dtype() == DType::i64 ? scattered<std::int64_t>(computed, sources_, filled_up, shape_)
                                        : scattered<double>(computed, sources_, filled_up, shape_);
}

bool reads_positions(const SequenceModel& model) {
  const auto* const transformer = dynamic_cast<const Transformer*>(&model);
  return transformer != nullptr && std::ranges::any_of(transformer->encoding(0), [](const HeadGroup& group) {
           return group.encoding->traits.embeds;
         });
}

}  // namespace tally
