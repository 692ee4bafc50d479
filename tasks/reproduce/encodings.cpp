// Every encoding on every task, in one table: no paper has it.
#include "tasks/reproduction.hpp"

namespace tally {
namespace {

std::vector<ReproductionRow> every_encoding() {
  std::vector<ReproductionRow> rows;
  for (const EncodingEntry* entry : encoding_registry()) {
    // Hard attention is a way to attend and says nothing of positions.
    const std::string encoding = entry->name == "hard" ? "absolute+hard" : entry->name;
    rows.push_back({encoding, encoding});
  }
  return rows;
}

// All of them with three seeds in about an hour of two cores a task; flip-flop and the words of groups take as long
// with `quick`.
ReproductionColumn brief(const char* title, const char* task, const char* split) {
  return {.title = title, .task = task, .split = split, .preset = {"brief", "paper"}};
}

}  // namespace
}  // namespace tally

TALLY_REPRODUCTION(encodings, .title = "Every encoding on every task", .source = "nowhere; this table is ours",
                   .columns = {{"flip-flop", "flip-flop", "in-distribution"},
                               {"flip-flop sparse", "flip-flop", "ood-sparse"},
                               brief("selective copy", "selective-copy", "in-distribution"),
                               brief("copy dense", "selective-copy", "ood-dense"),
                               brief("copy sparse", "selective-copy", "ood-sparse"),
                               brief("counting", "counting", "test"),
                               brief("counting, few passes", "counting", "ood-short"),
                               brief("mqar", "mqar", "in-distribution"),
                               brief("mqar, twice the pairs", "mqar", "ood-dense"),
                               brief("mqar, twice as long", "mqar", "ood-long"),
                               {{"s3 words", "a5 words"}, "group-word", "in-distribution"},
                               {{"s3 words, twice as long", "a5 words, twice as long"}, "group-word", "ood-long"}},
                   .rows = every_encoding(),
                   .choices = {
                       {"settings of a task",
                        "those of its preset, below",
                        {"ours", "of the paper that has the task; what it leaves open is told in the preset"}}});
