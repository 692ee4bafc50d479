// Relative positions (Shaw et al. 2018, arXiv 1803.02155, equation 5, for keys only):
//   l_ij = (q_i.k_j + q_i.e[i-j]) / sqrt(d),  e [K, d] shared by heads
// Distances i-j >= K are an error, or use row K-1 (the CoPE paper's relative-capped), or have no term (its plain
// relative in figure 3).
#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct RelativeOptions final : OptionsOf<RelativeOptions> {
  static constexpr std::array<std::string_view, 1> after_training{"far"};
  std::string far = "refuse";
  std::string share = "layer";
  std::int64_t distances = 0;
  bool rotated_query = false;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("far", far, {"refuse", "cap", "none"},
                   "distances beyond the table: an error, its last row, or no term");
    visitor.choice("share", share, {"layer", "model"}, "one table per layer, or one for the whole model");
    visitor.integer("distances", distances, "rows K of the table; 0 for the longest sequence", 0, 1 << 20);
    visitor.flag(rotated_query_option, rotated_query,
                 "in a combination with a rotation, multiply the table with the rotated q");
  }
  void validate() const override {
    check(far != "cap" || distances != 1, "relative",
          "distances = 1 with far = cap gives all keys of a row one term, in which no position is left; choose "
          "distances of at least 2, or far = none");
  }
};

class Relative final : public Encoding {
 public:
  Relative(const EncodingSetup& setup, const RelativeOptions& options)
      : refuse_far_(options.far == "refuse"), cap_far_(options.far == "cap"), rotated_query_(options.rotated_query) {
    const std::int64_t rows = options.distances > 0 ? options.distances : setup.max_length;
    const double deviation = 1.0 / std::sqrt(static_cast<double>(setup.head_width));
    table_ = setup.parameter("table", {rows, setup.head_width}, Fill::normal(deviation),
                             options.share == "model" ? Scope::model : Scope::layer);
  }

  std::int64_t rows_by_position() const override { return table_.size(0); }
  void check_length(std::int64_t length) const override {
    check(!refuse_far_ || length <= table_.size(0), "relative",
          "the table has {} distances, the sequence {} tokens; far = cap or none allows longer sequences",
          table_.size(0), length);
  }

  void score(const AttentionInput& in, Score& score) const override {
    const std::int64_t rows = std::min(in.keys(), table_.size(0));
    const Tensor near = slice(table_, 0, 0, rows);
    score.biases.push_back(ToeplitzProduct{in.query(rotated_query_), unsqueeze(unsqueeze(near, 0), 0), cap_far_});
  }

 private:
  bool refuse_far_, cap_far_, rotated_query_;
  Tensor table_;  // [K, d]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(relative, RelativeOptions, Relative, "a learned key vector for each distance",
               "l_ij = (q_i.k_j + q_i.e[i-j]) / sqrt(d);  e [K, d]\n"
               "on a GPU needs B H T min(T, K) numbers a layer",
               "Shaw et al. 2018, arXiv 1803.02155 (keys only)", .reads_heads = false);
