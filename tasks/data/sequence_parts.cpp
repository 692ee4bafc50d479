#include "tasks/data/sequence_parts.hpp"

#include <algorithm>
#include <functional>
#include <span>

#include "core/error.hpp"
#include "nn/transformer.hpp"

namespace tally {
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
