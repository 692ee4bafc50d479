// Associative recall as in Zoology (Arora et al. 2023, arXiv 2312.04927), also with keys that are assigned anew: the
// law of the tasks mqar and mqar-update.
//
// V ids: 0 fills, 1..V/2-1 are keys, V/2..V-1 values. K different keys and K different values, uniform, make the
// context k1 v1 .. kK vK. With U updates there follow U different keys of the K, uniform, in random order, each with a
// new value uniform over all values but the key's first. The other T - 2(K+U) positions are S slots of two. Key i
// = 1..K, in the order of the context, takes a slot g of 0..S-1 with weight (g+1)^(a-1), a = 0.01, drawn one after the
// other from those left: the slot's first position holds the key, at which its latest value is asked. All other
// positions hold 0, or, each by itself, any of the V ids. Answers are never fed; loss and score are on the queries.
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
  // Throws Error where keys, values or slots do not suffice for the law.
  void add(std::string split, std::int64_t count, const RecallLaw& law, std::uint64_t seed);
  // Whether a further split can have this law: keys enough, and a slot for each. What training needs is asked by add().
  bool fits(const RecallLaw& law) const {
    return law.pairs < first_value_ && 4 * law.pairs + 2 * law.updates <= law.length;
  }

 private:
  Example draw(Rng& rng, const RecallLaw& law) const override;

  std::int64_t first_value_;  // V/2
  bool random_filler_;
};

}  // namespace tally
