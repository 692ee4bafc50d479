// A sink: one more learned logit per head, which takes a share of every row's softmax and has no value. A query thus
// need not attend to any key (the released code of gpt-oss, 2025; zero and fixed it is "softmax off by one").
//   a_ij = e^l_ij / (e^c_h + sum_k e^l_ik)
// With the option remainder its share gets a value after all.
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct SinkOptions final : OptionsOf<SinkOptions> {
  double deviation = 0.02;
  RemainderOption remainder;

  void visit(OptionVisitor& visitor) override {
    visitor.real("deviation", deviation, "standard deviation of the initial c", 0, 10);
    remainder.visit(visitor, "vector that gets the sink's mass");
  }
};

class Sink final : public Encoding {
 public:
  Sink(const EncodingSetup& setup, const SinkOptions& options)
      : logit_(setup.parameter("logit", {setup.heads}, Fill::normal(options.deviation))),
        remainder_(setup, options.remainder) {}

  void score(const AttentionInput& in, Score& score) const override {
    score.set_softmax_rule({.sink = logit_, .rest = remainder_(in)});
  }

 private:
  Tensor logit_;  // c [H]
  Remainder remainder_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(sink, SinkOptions, Sink, "a learned logit per head that takes a share of every softmax",
               "a_ij = e^l_ij / (e^c_h + sum_k e^l_ik);  c learned, from N(0, 0.02²)",
               "attention sinks: Xiao et al. 2024, arXiv 2309.17453; learned, in the released code of gpt-oss",
               .reads_heads = false);
