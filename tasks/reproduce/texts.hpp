// The texts of language models: what tasks/text/fetch.sh makes at the quick scale; at the paper's, what a user has.
#pragma once

#include "tasks/reproduction.hpp"

namespace tally::reproduce {

inline const ReproductionText code{
    {"code-quick", "code-paper"},
    {"data/code", "data/code-paper"},
    {"tasks/text/fetch.sh code data/code --vocabulary 1024",
     "tally prepare data/code-paper FOLDER, of code of your own with a tokenizer of 32,000 tokens"}};

inline const ReproductionText prose{{"prose-quick", "wikitext-paper"},
                                    {"data/prose", "data/wikitext"},
                                    {"tasks/text/fetch.sh prose data/prose --vocabulary 1024",
                                     "tally prepare data/wikitext FOLDER, of Wikitext-103 with GPT-2's tokenizer"}};

// What the presets leave open, for the choices of a table.
inline OpenChoice prose_choice() {
  return {"text",
          {"English essays, vocabulary 1,024, one epoch", "Wikitext-103, GPT-2's vocabulary, 100 epochs"},
          {"small, free, a Debian package: orders can be compared, perplexities cannot", "the paper's"}};
}
inline OpenChoice windows_choice() {
  return {"windows", "side by side, all targets scored", "the paper does not say how it evaluates"};
}

}  // namespace tally::reproduce
