// What several tables have in common: the choices that a task's settings leave open, and the programs that they count
// in.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tasks/reproduction.hpp"

namespace tally::reproduce {

using Choices = std::vector<OpenChoice>;

// first, then what else a table has.
inline Choices with(Choices first, const Choices& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// Of any model.
inline Choices flip_flop_data_choices() {
  return {{"flip-flop: weight decay, warm-up, loss mask",
           {"0.1 on matrices alone, 50 steps, the bit after r", "0.1, 50 steps, the bit after r"},
           {"Liu et al. 2023, arXiv 2306.00946, who decay all parameters", "Liu et al. 2023, arXiv 2306.00946"}},
          {"flip-flop: batch of 16 in all or per device", "in all", "Liu et al. 2023; the paper does not say"},
          {"flip-flop: out of distribution", "p_i = 0.98 (sparse)", "our reading of the one OOD column"}};
}

// Of models with contextual positions.
inline Choices flip_flop_choices() {
  return with({{"flip-flop: p_max", "64", "ours; the paper gives 64 for its language models"}},
              flip_flop_data_choices());
}

// Programs of the quick preset, of up to 48 operations, are counted right by every encoding, of three and five
// variables too (0.1 to 5% wrong); these are not.
inline std::string longer_programs(const std::string& more = "") {
  return "task.max-operations=96 task.max-tokens=128" + more;
}
// Of cope in such programs: a row for every position, as the authors' code has.
inline constexpr const char* longer_table = "pe.p-max=128";

inline Choices counting_choices() {
  return {
      {"length of programs",
       {"3 to 96 operations", "3 to 512 operations"},
       {"in the preset's, of up to 48, every encoding is at 0 to 5%", "the paper's"}},
      {"cope's table",
       {"one per layer, 129 rows, z as printed", "one per layer, 513 rows, z / sqrt(d)"},
       {"as many rows as tokens; the authors' code has 513 for 512, and z / sqrt(d)", "the authors' released code"}},
      {"relative's table",
       {"one per layer", "one for the whole model"},
       {"as on the other tasks; the authors' code has one for the whole model", "the authors' released code"}},
      {"which epoch counts",
       {"what stands after the last step", "the last"},
       {"the training set is as large as all steps together", "the authors' released code"}}};
}

}  // namespace tally::reproduce
