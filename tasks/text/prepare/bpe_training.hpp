// Byte pair encoding (Sennrich et al. 2016, algorithm 1), trained on pieces with their counts:
//   1. the count of a pair is the sum over pieces of its neighbouring positions times the piece's count; positions
//      that overlap all count ("aaa" has (a, a) twice);
//   2. the pair of the largest count is merged; of equal counts the one with the smallest left id, then right id;
//   3. in every piece it is replaced from left to right, never overlapping; its id is the next free one, or the id
//      of an existing token with the same bytes;
//   4. until the vocabulary is full, or the largest count is below min_count.
// The result depends only on the counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tasks/text/hash_tables.hpp"
#include "tasks/text/splitter.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

// The number of occurrences of each piece in texts.
using PieceCounts = std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>>;
// Adds the pieces of a text. Throws like Splitter.
void count_pieces(Splitter& splitter, std::string_view text, PieceCounts& counts);

struct BpeTraining {
  std::int64_t vocabulary = 4096;  // bytes, merges and special tokens together
  std::int64_t min_count = 2;
  std::string pattern = "gpt2";
  std::vector<std::string> specials = {std::string(end_of_text_name)};  // ids after the merges
  std::function<void(std::int64_t tokens)> progress = {};               // called after each merge
};

// Throws Error when the vocabulary has no room for the bytes and the special tokens.
TokenizerParts train_bpe(const PieceCounts& counts, const BpeTraining& training);

}  // namespace tally
