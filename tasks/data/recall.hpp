// Associative recall as in Zoology (Arora et al. 2023, arXiv 2312.04927), also with keys that are assigned again. This
// is the distribution of the tasks mqar and mqar-update.
//
// There are V ids: 0 is the filler, 1..V/2-1 are keys and V/2..V-1 are values. K different keys and K different values,
// uniform, form the context k1 v1 .. kK vK. With U updates, U different keys of the K follow, uniform and in random
// order, each with a new value uniform over all values except the key's first. The other T - 2(K+U) positions are S
// slots of two. Key i = 1..K, in the order of the context, takes a slot g of 0..S-1 with weight (g+1)^(a-1), a = 0.01.
// Slots are drawn one after the other from the slots that are left. The first position of the slot holds the key and
// asks for its latest value. All other positions hold 0 or, drawn independently, any of the V ids. Answers are never
// fed; loss and score are on the queries.
#pragma once

#include "tasks/data/toy_task.hpp"

namespace tally {

struct RecallLaw {
  std::int64_t pairs = 0, updates = 0, length = 0;
};

struct RecallOptions {
  std::int64_t vocabulary = 8192;
  std::int64_t pairs = 16;
  std::int64_t length = 256;
  std::string filler = "zero";
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor);
};

class Recall : public ToyTask<RecallLaw> {
 public:
  Recall(std::string name, const RecallOptions& options);

 protected:
  // Throws Error if there are too few keys, values or slots.
  void add(std::string split, std::int64_t count, const RecallLaw& law, std::uint64_t seed);
  // Whether a further split can have this distribution: it needs enough keys, and a slot for each. For training, add()
  // checks.
  bool fits(const RecallLaw& law) const {
    return law.pairs < first_value_ && 4 * law.pairs + 2 * law.updates <= law.length;
  }

 private:
  Example draw(Rng& rng, const RecallLaw& law) const override;

  std::int64_t first_value_;  // V/2
  bool random_filler_;
};

}  // namespace tally
