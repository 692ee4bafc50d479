// The number of occurrences of each piece in texts: the training data of a tokenizer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tasks/text/hash_tables.hpp"
#include "tasks/text/splitter.hpp"

namespace tally {

class PieceCounts {
 public:
  std::size_t size() const { return entries_.size(); }
  std::string_view piece(std::size_t index) const {
    return {bytes_.data() + entries_[index].begin, entries_[index].size};
  }
  std::int64_t count(std::size_t index) const { return entries_[index].count; }

  void add(std::string_view piece, std::int64_t count);
  void add(const PieceCounts& other);
  // Drops the pieces that occurred once.
  void drop_single();

 private:
  struct Entry {
    std::size_t begin, size;
    std::int64_t count;
  };
  std::vector<char> bytes_;
  std::vector<Entry> entries_;
  TextIndex index_;
};

// Adds the pieces of a text. Throws like Splitter.
void count_pieces(Splitter& splitter, std::string_view text, PieceCounts& counts);

}  // namespace tally
