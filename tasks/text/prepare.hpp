// From texts to a folder that training reads (tasks/text/prepared_text.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/text/corpus.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

struct PrepareSettings {
  std::vector<CorpusSource> sources;
  CorpusRules rules;
  std::string recipe, licence;              // as the manifest tells them
  std::string tokenizer;                    // file; empty: one is trained on the training split
  std::vector<SpecialToken> specials = {};  // of a .tiktoken file
  std::int64_t vocabulary = 4096;           // of the one that is trained; 257: bytes alone
  std::int64_t min_count = 2;
  std::int64_t piece_limit = 20'000'000;  // different pieces; where there are more, those seen once are dropped
  std::string pattern;                    // of the one that is trained (gpt2), or of a .tiktoken file
  bool force = false;                     // a folder that is there is moved aside
};

struct PrepareObserver {
  // What is done ("reading", "training", "train"), and how much of it.
  std::function<void(std::string_view stage, std::uint64_t done, std::uint64_t total)> progress;
  std::function<void(std::string_view line)> note;
  const std::atomic<bool>* stop = nullptr;
};

// Writes `<out>.partial` and renames it to `out` when all is there. What was made of the same texts with the same
// settings before an interruption is taken over: tokenizer and finished splits. The same input gives the same bytes,
// for any number of threads. A text that vanishes or changes while this is at work is dropped, counted as unreadable
// and noted, or with `strict` refused. Returns the manifest; null when it was stopped. Throws Error for what cannot be
// read or written, no text at all, a folder that is there or that another process is making, and a tokenizer without
// end_of_text_name.
JsonValue prepare_text(const std::string& out, const PrepareSettings& settings, const PrepareObserver& observer);

}  // namespace tally
