// How a model computes a batch: so many sequences at once, and where one holds several texts that must not see each
// other (Example::starts), each text as a sequence of its own. So no encoding, device or form of attention has to know
// of such texts; its tokens keep the positions that they have in the batch (language models: keys before the last end
// of a text are not seen, and positions go on).
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/data/batch.hpp"

namespace tally {

class SequenceModel;

// `rows` sequences of `length` tokens; these lie one after the other, from number `first` on.
struct SequencePart {
  std::int64_t first = 0, rows = 0, length = 0;
  std::int64_t first_sequence = 0;  // StepContext::first_sequence
  std::int64_t end() const { return first + rows * length; }
  bool operator==(const SequencePart&) const = default;
};

class SequenceParts {
 public:
  // at_once: sequences of the batch in one part; 0: all. Where texts are separate a part has no more tokens than these.
  // Texts of one part are at least half as long as its longest, to which they are filled up, so that fewer than half of
  // the tokens are filled up; which texts are together does not depend on at_once.
  explicit SequenceParts(const Batch& batch, std::int64_t at_once = 0);

  const std::vector<SequencePart>& parts() const { return parts_; }
  std::int64_t size() const { return tokens.size(0); }  // tokens of all parts, with those that fill up
  // [size]. Those that fill up count in no mask.
  Tensor tokens, targets, loss_mask;
  // Whether sequences of the parts are texts of the batch, whose tokens need not stand from 0 on.
  bool separate() const { return separate_; }
  // Of such: where in the batch each token stands, i32 [size], and what is beyond all of them.
  Tensor positions() const;
  std::int64_t positions_end() const { return shape_[1]; }

  // What was computed of them, [size] of f64 or i64 on the host, as the batch has it: [B, T].
  Tensor put_back(const Tensor& computed) const;

 private:
  static constexpr std::int64_t filled_up = -1;
  void take_texts(const Batch& batch, std::int64_t at_once);

  bool separate_ = false;
  std::vector<SequencePart> parts_;
  std::vector<std::int64_t> sources_;  // the token of the batch that stands here; empty: all as they are
  Shape shape_;                        // of the batch
};

// Whether it matters to a model where in the batch tokens stand: to encodings that join the embeddings alone.
bool reads_positions(const SequenceModel& model);

}  // namespace tally
