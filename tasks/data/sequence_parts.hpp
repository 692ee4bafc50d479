// How a model computes a batch: some sequences at once. If a sequence holds several texts that must be masked from each
// other (Example::starts), each text becomes a sequence. No encoding, device or form of attention has to handle such
// texts. Tokens keep the positions that they have in the batch. (In language models, keys before the last end of a text
// are masked, and positions continue.)
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/data/batch.hpp"

namespace tally {

class SequenceModel;

// `rows` sequences of `length` tokens, one after the other, beginning at token `first`.
struct SequencePart {
  std::int64_t first = 0, rows = 0, length = 0;
  std::int64_t first_sequence = 0;  // StepContext::first_sequence
  std::int64_t end() const { return first + rows * length; }
  bool operator==(const SequencePart&) const = default;
};

class SequenceParts {
 public:
  // at_once: sequences of the batch in one part; 0: all. With separate texts, a part has no more tokens than that many
  // sequences. Texts of one part are padded to the longest, and the others are more than half as long. Padding is
  // therefore less than half of the tokens. The grouping of texts does not depend on at_once.
  explicit SequenceParts(const Batch& batch, std::int64_t at_once = 0);

  const std::vector<SequencePart>& parts() const { return parts_; }
  std::int64_t size() const { return tokens.size(0); }  // tokens of all parts, with padding
  // [size]. No mask counts padding.
  Tensor tokens, targets, loss_mask;
  // Whether the sequences of the parts are texts of the batch. The positions of their tokens need not start at 0.
  bool separate() const { return separate_; }
  // For separate texts: the position of each token in the batch, i32 [size], and the end of all positions.
  Tensor positions() const;
  std::int64_t positions_end() const { return shape_[1]; }

  // Rearranges computed values, [size] of f64 or i64 on the host, into the order of the batch: [B, T].
  Tensor put_back(const Tensor& computed) const;

 private:
  static constexpr std::int64_t filled_up = -1;
  void take_texts(const Batch& batch, std::int64_t at_once);

  bool separate_ = false;
  std::vector<SequencePart> parts_;
  std::vector<std::int64_t> sources_;  // the batch's token at each place; empty: the order of the batch
  Shape shape_;                        // of the batch
};

// Whether the model uses the positions of tokens in the batch. Only encodings that are added to embeddings do.
bool reads_positions(const SequenceModel& model);

}  // namespace tally
