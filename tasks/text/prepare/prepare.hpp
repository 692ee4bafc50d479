// Prepares texts as a folder that training reads (tasks/text/prepare/text_tokens.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/text/prepare/corpus.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

struct PrepareSettings {
  std::vector<CorpusSource> sources;
  CorpusRules rules;
  std::string recipe, licence;              // recorded in the manifest
  std::string tokenizer;                    // file; empty: one is trained on the training split
  std::vector<SpecialToken> specials = {};  // of a .tiktoken file
  std::string end_token = {};               // special token between documents; empty: as end_token() chooses
  std::int64_t vocabulary = 4096;           // of a trained tokenizer; 257: bytes only
  std::int64_t min_count = 2;
  std::string pattern;  // of a trained tokenizer (gpt2), or of a .tiktoken file
  bool force = false;   // moves an existing folder aside
};

struct PrepareObserver {
  // The current stage ("reading", "training", "train") and its progress.
  std::function<void(std::string_view stage, std::uint64_t done, std::uint64_t total)> progress;
  std::function<void(std::string_view line)> note;
  const std::atomic<bool>* stop = nullptr;
};

// Writes `<out>.partial` and renames it to `out` at the end. After an interruption the same call begins again and
// replaces the files that it finds there; a non-empty `<out>.partial` of another program is refused. Each text is one
// document and is encoded whole by Encoder, so that at most 32 MiB of texts, or a single longer one, and their tokens
// are in memory. The same input gives the same bytes for any number of threads. A text that vanishes or changes
// meanwhile is dropped, counted as unreadable and noted, or with `strict` refused. Returns the manifest; null when it
// was stopped. Throws Error if a file cannot be read or written; if no text is left; for a text that the tokenizer
// refuses, with file and line; for a folder that exists or that another process is making; and as end_token().
JsonValue prepare_text(const std::string& out, const PrepareSettings& settings, const PrepareObserver& observer);

}  // namespace tally
