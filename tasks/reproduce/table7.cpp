// CoPE paper, table 7: flip-flop by size of the model, with hard attention, and with variants of contextual positions.
#include <array>

#include "tasks/reproduce/choices.hpp"

namespace tally {
namespace {

using Pair = std::array<Printed, 2>;

// One encoding in the paper's eight sizes: width 256 and 128, layers/heads 4/4, 2/4, 4/2, 2/2. The quick preset has
// two layers and four heads, the paper's four and four.
void add_sizes(std::vector<ReproductionRow>& rows, const std::string& encoding, const std::array<Pair, 8>& printed) {
  struct Size {
    const char *name, *quick, *paper;
  };
  const std::array<Size, 4> sizes{{{"4/4", "model.layers=4", ""},
                                   {"2/4", "", "model.layers=2"},
                                   {"4/2", "model.layers=4 model.heads=2", "model.heads=2"},
                                   {"2/2", "model.heads=2", "model.layers=2 model.heads=2"}}};
  for (std::size_t n = 0; n < printed.size(); ++n) {
    const Size& size = sizes[n % sizes.size()];
    const bool narrow = n >= sizes.size();
    const std::string name = encoding + (narrow ? " 128 (32) " : " 256 (64) ") + size.name;
    const auto settings = [&](const char* of, const char* width) {
      return narrow ? std::string(width) + (*of == '\0' ? "" : " ") + of : std::string(of);
    };
    rows.push_back({name,
                    encoding,
                    {settings(size.quick, "model.width=32"), settings(size.paper, "model.width=128")},
                    {printed[n][0], printed[n][1]}});
  }
}

// A variant in the largest size.
ReproductionRow variant(const std::string& label, const std::string& encoding, const std::string& settings,
                        const std::vector<Printed>& printed) {
  return {label, encoding, {"model.layers=4" + (settings.empty() ? "" : " " + settings), settings}, printed};
}

std::vector<ReproductionRow> all_rows() {
  std::vector<ReproductionRow> rows;
  add_sizes(rows, "absolute",
            {Pair{{{6.8, 6.9}, {21.7, 7.9}}}, Pair{{{11.1}, {10.6}}}, Pair{{{0.1}, {18.0}}}, Pair{{{13.9}, {31.5}}},
             Pair{{{5.4}, {24.8}}}, Pair{{{0.08}, {19.9}}}, Pair{{{0.07}, {16.5}}}, Pair{{{19.1}, {28.6}}}});
  rows.push_back(variant("absolute + hard attention", "absolute+hard", "", {{50.7}, {49.1}}));
  add_sizes(rows, "rope",
            {Pair{{{1.8, 3.1}, {20.3, 2.9}}}, Pair{{{5.1}, {14.7}}}, Pair{{{0.02}, {19.0}}}, Pair{{{5.4}, {19.8}}},
             Pair{{{0.1}, {8.9}}}, Pair{{{0.1}, {18.2}}}, Pair{{{0.02}, {17.3}}}, Pair{{{14.4}, {25.2}}}});
  add_sizes(rows, "cope",
            {Pair{{{0.03, 0.06}, {4.9, 4.4}}}, Pair{{{0.0}, {13.2}}}, Pair{{{0.0}, {3.0}}}, Pair{{{0.0}, {14.6}}},
             Pair{{{0.2}, {33.2}}}, Pair{{{0.03}, {22.3}}}, Pair{{{0.03}, {14.5}}}, Pair{{{0.02}, {24.5}}}});
  rows.push_back(variant("cope-mlp", "cope-mlp", "", {{0.03}, {5.9}}));
  rows.push_back(variant("cope-mlp, first layer", "cope-mlp", "pe.layers=first", {{0.9}, {24.3}}));
  rows.push_back(variant("cope-alibi, + 1", "cope-alibi", "", {{0.0}, {11.4, 3.4}}));
  rows.push_back(variant("cope-alibi, + 1/4", "cope-alibi", "pe.first-slope=0.25", {{0.0}, {8.7, 7.6}}));
  rows.push_back(variant("cope-alibi, + 1/16", "cope-alibi", "pe.first-slope=0.0625", {{0.0}, {17.1, 1.5}}));
  rows.push_back(variant("cope-alibi, learned", "cope-alibi", "pe.slopes=learned", {{0.0}, {11.4, 4.0}}));
  for (const auto& [slope, setting] :
       {std::pair{"1", ""}, {"1/4", " pe.first-slope=0.25"}, {"1/16", " pe.first-slope=0.0625"}}) {
    rows.push_back(variant(std::string("cope-alibi, - ") + slope + " (not in the paper)", "cope-alibi",
                           std::string("pe.sign=minus") + setting, {}));
  }
  return rows;
}

}  // namespace
}  // namespace tally

TALLY_REPRODUCTION(
    table7, .title = "Flip-flop by size of the model, and variants of contextual positions",
    .source = "CoPE (arXiv 2405.18719), table 7",
    .columns = {{"in-distribution", "flip-flop", "in-distribution"}, {"sparse (OOD)", "flip-flop", "ood-sparse"}},
    .rows = all_rows(),
    .choices = reproduce::with(
        {{"sizes",
          {"width in print (width here), layers/heads as in print",
           "width in print (that of the quick scale), layers/heads"},
          {"a quarter of the width, the same layers: with one layer instead of two nothing is learned", "the paper's"}},
         {"cope-alibi: sign of the slopes", "+ as printed, and - beside it; slopes that are learned from 0 find theirs",
          "printed as s + m p, which favours far keys; ALiBi has s - m (i-j)"},
         {"cope-alibi: learned slopes", "one a head and layer, from 0", "ours; start and sharing are not stated"},
         {"cope-mlp: where position enters", "unclamped, z not scaled, one network a layer", "ours"},
         {"hard attention: gradient", "straight through", "ours; not stated"}},
        reproduce::flip_flop_choices()));
