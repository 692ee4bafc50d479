#include "tasks/text/prepare/prepare.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/cpu/parallel.hpp"
#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/checksum.hpp"
#include "core/io/folder_lock.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/normal_form.hpp"
#include "tasks/text/prepare/bpe_training.hpp"
#include "tasks/text/prepare/token_file.hpp"
#include "tasks/text/tokenizer.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

// A batch of texts in memory ends at either limit, or is a single longer text.
constexpr std::uint64_t batch_bytes = 32 << 20;
constexpr std::size_t batch_texts = 4096;
constexpr std::size_t long_text = 1 << 20;
constexpr std::size_t most_pieces = 20'000'000;  // distinct ones; beyond this, pieces seen once are dropped
constexpr const char* split_names[] = {"train", "validation", "test"};
// Marks the temporary folder as one of a preparation.
constexpr const char* unfinished_file = "unfinished";

std::string shown_folder(const std::string& path) { return escape_for_print(path, 1000); }

struct Document {
  const CorpusText* text;
  std::string bytes = {};
  std::vector<std::int32_t> ids = {};
  std::int64_t words = 0;
  std::string gone = {};                 // why the text cannot be read again
  std::exception_ptr refused = nullptr;  // by the tokenizer
};

// Writes <folder>/<name>.bin and documents-<name>.tsv.
class SplitFiles {
 public:
  // token_bytes: 2 or 4.
  SplitFiles(const std::string& folder, const std::string& name, std::size_t token_bytes, std::int32_t end_of_text)
      : token_bytes_(token_bytes),
        end_of_text_(end_of_text),
        tokens_(formatted("{}/{}.bin", folder, name)),
        documents_(formatted("{}/documents-{}.tsv", folder, name)) {}

  void add(const Document& document) {
    const CorpusText& text = *document.text;
    write({&end_of_text_, 1});
    documents_.write(formatted("{}\t{}\t{}\t{}\n", text.path, token_count_, document.ids.size(), text.bytes));
    write(document.ids);
    text_sum_ = crc32c(document.bytes, text_sum_);
    bytes_ += std::ssize(document.bytes);
    words_ += document.words;
    ++texts_;
    files_ += text.file != last_file_ ? 1 : 0;
    last_file_ = text.file;
  }

  // Puts the files in place. Returns the manifest's entry.
  JsonValue finish() {
    if (texts_ > 0) write({&end_of_text_, 1});
    tokens_.finish();
    documents_.finish();
    return JsonValue::object({{"files", files_},
                              {"documents", texts_},
                              {"bytes", bytes_},
                              {"words", words_},
                              {"tokens", token_count_},
                              {"text_checksum", checksum_text(text_sum_)},
                              {"token_checksum", checksum_text(token_sum_)}});
  }

 private:
  void write(std::span<const std::int32_t> ids) {
    const std::string packed = packed_tokens(ids, token_bytes_);
    tokens_.write(packed);
    token_sum_ = crc32c(packed, token_sum_);
    token_count_ += std::ssize(ids);
  }

  std::size_t token_bytes_;
  std::int32_t end_of_text_;
  std::uint32_t text_sum_ = 0, token_sum_ = 0;
  std::int64_t files_ = 0, texts_ = 0, bytes_ = 0, words_ = 0, token_count_ = 0;
  std::string last_file_;
  AtomicFile tokens_, documents_;
};

class Preparation {
 public:
  Preparation(const std::string& out, const PrepareSettings& settings, const PrepareObserver& observer)
      : out_(out), partial_(out + ".partial"), settings_(settings), observer_(observer) {}

  JsonValue run() {
    check(settings_.specials.empty() || settings_.tokenizer.ends_with(".tiktoken"), "text",
          "the ids of special tokens are named only for a .tiktoken file, as --tokenizer names one");
    check_out("--force moves it aside");
    const auto progress = [&](std::uint64_t bytes) {
      if (observer_.progress) observer_.progress("reading", bytes, 0);
      return !stopped();
    };
    corpus_ = select_texts(settings_.sources, settings_.rules, {progress, observer_.note});
    if (stopped()) return {};
    if (corpus_.texts.empty()) refuse_empty();
    std::optional<TokenizerParts> parts = given_tokenizer();
    open_partial();
    if (!parts) parts = train();
    if (!parts) return {};
    const JsonValue tokenizer = write_tokenizer(std::move(*parts));
    JsonValue splits = JsonValue::object();
    std::int64_t documents = 0;
    for (const char* name : split_names) {
      const JsonValue split = encode_split(name);
      if (split.is_null()) return {};
      documents += split.integer("documents");
      splits.set(name, split);
    }
    // The texts that have vanished or changed since they were selected.
    corpus_.drop("unreadable", std::ssize(corpus_.texts) - documents);
    if (documents == 0) refuse_empty();
    JsonValue manifest = JsonValue::object({{"version", 1},
                                            {"recipe", recipe()},
                                            {"counts", corpus_.counts(documents)},
                                            {"splits", std::move(splits)},
                                            {"tokenizer", tokenizer},
                                            {"unicode", unicode_version()},
                                            {"element", token_bytes() == 2 ? "uint16" : "uint32"}});
    write_file_atomically(in_partial("manifest.json"), write_json(manifest, 2) + "\n");
    finish();
    return manifest;
  }

 private:
  bool stopped() const { return observer_.stop != nullptr && *observer_.stop; }
  void note(const std::string& line) const {
    if (observer_.note) observer_.note(line);
  }
  std::string in_partial(std::string_view name) const { return formatted("{}/{}", partial_, name); }
  std::size_t token_bytes() const { return tally::token_bytes(tokenizer_->vocabulary()); }

  void check_out(std::string_view why) const {
    check(settings_.force || !fs::exists(out_), "text", "{}: is there already; {}", shown_folder(out_), why);
  }

  [[noreturn]] void refuse_empty() const {
    std::string sources, reasons;
    for (const CorpusSource& source : settings_.sources) {
      sources += formatted("{}{}", sources.empty() ? "" : ", ", escape_for_print(source.path, 200));
    }
    const JsonValue counts = corpus_.counts(0);
    for (const JsonMember& rule : counts.members("dropped")) {
      if (rule.value.integer() > 0) reasons += formatted(", {} {}", rule.name, rule.value.integer());
    }
    fail("text", "{}: no text is left; found {}, dropped by{}{}", sources, corpus_.found,
         reasons.empty() ? " nothing" : reasons.substr(1),
         corpus_.first_reason.empty() ? "" : formatted("; the first: {}", corpus_.first_reason));
  }

  // The manifest's record of the settings.
  JsonValue recipe() const {
    JsonValue sources = JsonValue::array();
    for (const CorpusSource& source : settings_.sources) {
      const std::string name = escape_for_print(fs::path(source.path).lexically_normal().filename().string());
      sources.push(source.split.empty() ? JsonValue(name) : JsonValue::object({{source.split, name}}));
    }
    return JsonValue::object({{"name", settings_.recipe},
                              {"licence", settings_.licence},
                              {"sources", std::move(sources)},
                              {"rules", settings_.rules.json()},
                              {"vocabulary", settings_.vocabulary},
                              {"min_count", settings_.min_count},
                              {"pattern", settings_.pattern.empty() ? "gpt2" : settings_.pattern}});
  }

  // If two preparations start at once, one creates the folder, or finishes before the other begins. A folder that an
  // interrupted preparation left behind is used again, and its files are replaced.
  void open_partial() {
    std::error_code error;
    fs::create_directories(partial_, error);
    check(!error, "text", "{}: cannot be made: {}", shown_folder(partial_), error.message());
    lock_ = lock_folder("text", partial_);
    check(lock_.has_value(), "text", "{}: another process is preparing in it", shown_folder(partial_));
    check_out("another process has just made it");
    check(fs::is_empty(partial_) || fs::exists(in_partial(unfinished_file)), "text",
          "{}: is in the way; it is no folder of an interrupted preparation, since it has no file '{}'. Move it away, "
          "or choose another name",
          shown_folder(partial_), unfinished_file);
    write_file_atomically(in_partial(unfinished_file), "tally prepare is at work here, or was interrupted.\n");
  }

  // Nothing if a tokenizer is to be trained.
  std::optional<TokenizerParts> given_tokenizer() const {
    const std::string& name = settings_.tokenizer;
    if (name == "bytes" || (name.empty() && settings_.vocabulary == byte_count + 1)) return byte_tokenizer();
    if (name.empty()) return std::nullopt;
    TokenizerParts parts = read_tokenizer(name, settings_.pattern, settings_.specials);
    for (const std::string& line : parts.notes) note(line);
    return parts;
  }

  // Returns the manifest's entry.
  JsonValue write_tokenizer(TokenizerParts parts) {
    const std::string text = tokenizer_json(parts);
    write_file_atomically(in_partial("tokenizer.json"), text);
    end_of_text_ = end_token(parts, settings_.end_token, settings_.tokenizer);
    tokenizer_ = std::make_unique<Tokenizer>(std::move(parts));
    return JsonValue::object({{"vocabulary", tokenizer_->vocabulary()},
                              {"merges", tokenizer_->parts().merges.size()},
                              {"pattern", tokenizer_->parts().pattern()},
                              {"end_of_text", end_of_text_},
                              {"checksum", checksum_text(crc32c(text))}});
  }

  // Calls work(thread, document) for all texts of a split, on all threads, and use(documents) after each batch. Skips
  // texts that have vanished or changed. Returns false when it was stopped.
  template <class Work, class Use>
  bool for_each_batch(std::string_view split, std::string_view stage, Work&& work, Use&& use) {
    std::vector<const CorpusText*> texts;
    std::uint64_t total = 0, done = 0;
    for (const CorpusText& text : corpus_.texts) {
      if (text.split != split || dropped_.contains(&text)) continue;
      texts.push_back(&text);
      total += text.bytes;
    }
    for (std::size_t next = 0; next < texts.size();) {
      if (stopped()) return false;
      std::vector<Document> batch;
      for (std::uint64_t bytes = 0; next < texts.size() && batch.size() < batch_texts && bytes < batch_bytes; ++next) {
        bytes += texts[next]->bytes;
        done += texts[next]->bytes;
        batch.push_back({texts[next]});
      }
      read_in_parallel(batch, work);
      std::erase_if(batch, [&](const Document& document) { return drops(document); });
      use(batch);
      if (observer_.progress) observer_.progress(stage, done, total);
    }
    return true;
  }

  template <class Work>
  void read_in_parallel(std::vector<Document>& documents, Work&& work) {
    std::atomic<std::size_t> next{0};
    parallel_for(thread_count(), [&](std::int64_t thread) {
      for (std::size_t index = next++; index < documents.size(); index = next++) {
        Document& document = documents[index];
        try {
          document.bytes = read_corpus_text(*document.text, settings_.rules.field);
        } catch (const Error& why) {
          document.gone = why.what();
          continue;
        }
        try {
          work(static_cast<std::size_t>(thread), document);
        } catch (...) {
          document.refused = std::current_exception();
        }
      }
    });
  }

  // Whether the text has vanished or changed since it was selected; with `strict` that is an error. Rethrows, with its
  // place, the Error of a text that the tokenizer refuses.
  bool drops(const Document& document) {
    try {
      if (document.refused) std::rethrow_exception(document.refused);
    } catch (const Error& error) {
      fail("text", "{}: {}", document.text->place(), error.what());
    }
    if (document.gone.empty()) return false;
    if (settings_.rules.strict) throw Error(document.gone);
    dropped_.insert(document.text);
    note(formatted("dropped: {}", document.gone));
    return true;
  }

  // Nothing when it was stopped.
  std::optional<TokenizerParts> train() {
    BpeTraining training{.vocabulary = settings_.vocabulary, .min_count = settings_.min_count};
    if (!settings_.pattern.empty()) training.pattern = settings_.pattern;
    const SplitPattern pattern(training.pattern);
    const auto threads = static_cast<std::size_t>(thread_count());
    std::vector<std::unique_ptr<Splitter>> splitters(threads);
    for (auto& splitter : splitters) splitter = std::make_unique<Splitter>(pattern);
    std::vector<PieceCounts> found(threads);
    PieceCounts counts;
    bool noted = false;
    check(std::ranges::count(corpus_.texts, "train", &CorpusText::split) > 0, "text",
          "no text is left for training, so no tokenizer can be trained");
    const auto count = [&](std::size_t thread, Document& document) {
      count_pieces(*splitters[thread], document.bytes, found[thread]);
      document.bytes = {};
    };
    const bool whole = for_each_batch("train", "counting pieces", count, [&](const std::vector<Document>&) {
      // The sums do not depend on the thread that counted.
      for (PieceCounts& other : found) {
        for (const auto& [piece, number] : std::exchange(other, {})) counts[piece] += number;
      }
      if (counts.size() <= most_pieces) return;
      std::erase_if(counts, [](const auto& entry) { return entry.second == 1; });
      if (!noted) note(formatted("more than {} different pieces: those seen once are dropped", most_pieces));
      noted = true;
    });
    if (!whole) return std::nullopt;
    training.progress = [&](std::int64_t tokens) {
      if (!observer_.progress || tokens % 256 != 0) return;
      observer_.progress("training", static_cast<std::uint64_t>(tokens),
                         static_cast<std::uint64_t>(settings_.vocabulary));
    };
    return train_bpe(counts, training);
  }

  // The manifest's entry for the split; null when it was stopped.
  JsonValue encode_split(const char* name) {
    SplitFiles files(partial_, name, token_bytes(), end_of_text_);
    while (std::ssize(encoders_) < thread_count()) encoders_.push_back(std::make_unique<Encoder>(*tokenizer_));
    const auto encode = [&](std::size_t thread, Document& document) {
      // Reserves address space, not memory, so that the tokens of a long text are not copied as they grow.
      if (document.bytes.size() >= long_text) document.ids.reserve(document.bytes.size() + 1);
      encoders_[thread]->encode(document.bytes, document.ids);
      document.words = count_words(document.bytes);
    };
    const bool whole = for_each_batch(name, name, encode, [&](const std::vector<Document>& documents) {
      for (const Document& document : documents) files.add(document);
    });
    return whole ? files.finish() : JsonValue();
  }

  void finish() {
    std::error_code error;
    if (fs::exists(out_)) {
      std::string aside;
      for (int number = 1; aside.empty() || fs::exists(aside); ++number) aside = formatted("{}.old-{}", out_, number);
      fs::rename(out_, aside, error);
      check(!error, "text", "{}: cannot be moved aside: {}", shown_folder(out_), error.message());
      note(formatted("{} was moved to {}", shown_folder(out_), shown_folder(aside)));
    }
    fs::rename(partial_, out_, error);
    check(!error, "text", "{}: cannot be made: {}", shown_folder(out_), error.message());
    fs::remove(formatted("{}/{}", out_, unfinished_file), error);
  }

  std::string out_, partial_;
  const PrepareSettings& settings_;
  const PrepareObserver& observer_;
  std::optional<FileDescriptor> lock_;  // of the partial folder
  Corpus corpus_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::int32_t end_of_text_ = 0;
  std::set<const CorpusText*> dropped_;  // the texts that had changed
};

}  // namespace

JsonValue prepare_text(const std::string& out, const PrepareSettings& settings, const PrepareObserver& observer) {
  std::string folder = out;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  check(!folder.empty(), "text", "the folder to make has no name");
  for (const CorpusSource& source : settings.sources) {
    std::error_code error;
    const fs::path from = fs::weakly_canonical(source.path, error), to = fs::weakly_canonical(folder, error);
    const fs::path below = to.lexically_relative(from);
    check(below.empty() || *below.begin() == "..", "text", "{}: lies in the source {}, whose texts it would be one of",
          shown_folder(out), shown_folder(source.path));
  }
  return Preparation(folder, settings, observer).run();
}

}  // namespace tally
