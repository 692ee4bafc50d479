// Learned absolute positions (arXiv 1706.03762, section 3.5, the learned variant; GPT-2):
//   x_t += e[t],  e [T_max, D]
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

class Absolute final : public Encoding {
 public:
  explicit Absolute(const EncodingSetup& setup)
      : table_(setup.parameter("table", {setup.max_length, setup.width}, setup.start->learned_positions(setup.width),
                               Scope::model)) {}

  std::int64_t rows_by_position() const override { return table_.size(0); }
  void check_length(std::int64_t length) const override {
    check(length <= table_.size(0), "absolute", "the table has {} positions, the sequence {} tokens", table_.size(0),
          length);
  }
  Tensor embed(const Tensor& x, const TokenPositions& at) const override {
    const Tensor rows = at.rows();
    return x + (rows.defined() ? embedding(table_, rows) : slice(table_, 0, at.first, at.first + x.size(1)));
  }

 private:
  Tensor table_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(absolute, NoOptions, Absolute, "a learned vector for each position, added to the token embedding",
               "x_t += e[t];  e [T_max, D]", "Vaswani et al. 2017, arXiv 1706.03762 (learned variant)",
               .reads_heads = false);
