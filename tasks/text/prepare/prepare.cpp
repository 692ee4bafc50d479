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
#include "core/io/reader.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/prepare/bpe_training.hpp"
#include "tasks/text/prepare/encoded_split.hpp"
#include "tasks/text/prepare/end_token.hpp"
#include "tasks/text/prepare/token_file.hpp"
#include "tasks/text/prepare/words.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

// A batch of texts in memory ends at either limit, or is a single longer text.
constexpr std::uint64_t batch_bytes = 32 << 20;
constexpr std::size_t batch_texts = 4096;
constexpr std::size_t long_text = 1 << 20;
constexpr const char* split_names[] = {"train", "validation", "test"};

// Whether the file is a plan, written by this or an earlier version.
bool is_plan(const std::string& path) {
  try {
    const JsonValue plan = read_json(path);
    const bool has_members = plan.is_object() && plan.contains("version") && plan.contains("texts") &&
                             plan.contains("given_tokenizer") && plan.contains("recipe");
    return has_members && plan.at("recipe").is_object();
  } catch (const Error&) {
    return false;
  }
}

class Preparation {
 public:
  Preparation(const std::string& out, const PrepareSettings& settings, const PrepareObserver& observer)
      : out_(out), partial_(out + ".partial"), settings_(settings), observer_(observer) {}

  JsonValue run() {
    check(settings_.force || !fs::exists(out_), "text", "{}: is there already; --force moves it aside",
          escape_for_print(out_, 1000));
    const auto progress = [&](std::uint64_t bytes) {
      if (observer_.progress) observer_.progress("reading", bytes, 0);
      return observer_.stop == nullptr || !*observer_.stop;
    };
    corpus_ = select_texts(settings_.sources, settings_.rules, {progress, observer_.note});
    if (observer_.stop != nullptr && *observer_.stop) return {};
    if (corpus_.texts.empty()) refuse_empty();
    open_partial();
    if (!make_tokenizer()) return {};
    JsonValue splits = JsonValue::object();
    std::int64_t documents = 0;
    for (const char* name : split_names) {
      const JsonValue split = encode_split(name);
      if (split.is_null()) return {};
      documents += split.integer("documents");
      splits.set(name, split);
    }
    // The texts that have vanished or changed since they were selected.
    corpus_.unreadable += std::ssize(corpus_.texts) - documents;
    if (documents == 0) refuse_empty();
    JsonValue manifest =
        JsonValue::object({{"version", 1},
                           {"recipe", plan_.at("recipe")},
                           {"counts", corpus_.counts(documents)},
                           {"splits", std::move(splits)},
                           {"tokenizer", tokenizer_json_},
                           {"unicode", unicode_version()},
                           {"element", token_bytes(tokenizer_->vocabulary()) == 2 ? "uint16" : "uint32"}});
    write_file_atomically(partial_ + "/manifest.json", write_json(manifest, 2) + "\n");
    finish();
    return manifest;
  }

 private:
  [[noreturn]] void refuse_empty() const {
    std::string sources;
    for (const CorpusSource& source : settings_.sources) {
      sources += formatted("{}{}", sources.empty() ? "" : ", ", escape_for_print(source.path, 200));
    }
    std::string reasons;
    const JsonValue counts = corpus_.counts(0);
    for (const JsonMember& rule : counts.members("dropped")) {
      if (rule.value.integer() > 0) reasons += formatted(", {} {}", rule.name, rule.value.integer());
    }
    fail("text", "{}: no text is left; found {}, dropped by{}{}", sources, corpus_.found,
         reasons.empty() ? " nothing" : reasons.substr(1),
         corpus_.first_reason.empty() ? "" : formatted("; the first: {}", corpus_.first_reason));
  }

  std::string in_partial(std::string_view name) const { return formatted("{}/{}", partial_, name); }
  std::string shown_partial() const { return escape_for_print(partial_, 1000); }

  using TextPointers = std::vector<const CorpusText*>;
  TextPointers texts_of(std::string_view split) const {
    TextPointers texts;
    for (const CorpusText& text : corpus_.texts) {
      if (text.split == split && !dropped_.contains(&text)) texts.push_back(&text);
    }
    return texts;
  }

  // Opens the partial folder. Its plan has a checksum of all inputs; a folder with another plan is not reused.
  void open_partial() {
    std::uint32_t sum = 0;
    for (const CorpusText& text : corpus_.texts) {
      sum = crc32c(formatted("{}\n{}\n{}\n{}\n", text.path, text.split, text.bytes, text.checksum), sum);
    }
    JsonValue sources = JsonValue::array();
    for (const CorpusSource& source : settings_.sources) {
      const std::string name = fs::path(source.path).lexically_normal().filename().string();
      sources.push(source.split.empty() ? JsonValue(escape_for_print(name))
                                        : JsonValue::object({{source.split, escape_for_print(name)}}));
    }
    std::string tokenizer;
    check(settings_.specials.empty() || settings_.tokenizer.ends_with(".tiktoken"), "text",
          "the ids of special tokens are named for a .tiktoken file alone, as --tokenizer names one");
    if (!settings_.tokenizer.empty()) {
      parts_ = settings_.tokenizer == "bytes"
                   ? byte_tokenizer()
                   : read_tokenizer(settings_.tokenizer, settings_.pattern, settings_.specials);
      tokenizer = tokenizer_json(*parts_);
      for (const std::string& note : parts_->notes) {
        if (observer_.note) observer_.note(note);
      }
    } else if (settings_.vocabulary == byte_count + 1) {
      parts_ = byte_tokenizer();
    }
    plan_ = JsonValue::object(
        {{"version", 1},
         {"texts", checksum_text(sum)},
         {"given_tokenizer", checksum_text(crc32c(tokenizer))},
         {"end_token", settings_.end_token},
         {"recipe", JsonValue::object({{"name", settings_.recipe},
                                       {"licence", settings_.licence},
                                       {"sources", std::move(sources)},
                                       {"rules", settings_.rules.json()},
                                       {"vocabulary", settings_.vocabulary},
                                       {"min_count", settings_.min_count},
                                       {"piece_limit", settings_.piece_limit},
                                       {"pattern", settings_.pattern.empty() ? "gpt2" : settings_.pattern}})}});
    const std::string text = write_json(plan_, 2) + "\n";
    lock_partial();
    const std::string path = in_partial("plan.json");
    if (!fs::is_empty(partial_)) {
      check(is_plan(path), "text",
            "{}: is in the way; it is no folder of an interrupted preparation, since it has no plan.json of one. Move "
            "it away, or choose another name",
            shown_partial());
      if (read_whole_file(path, 1 << 24) == text) return;
      if (observer_.note)
        observer_.note(formatted("{}: drops the interrupted preparation of other texts or settings", shown_partial()));
      remove_earlier();
    }
    write_file_atomically(path, text);
  }

  // Removes only names that a preparation writes, and keeps the locked folder. The record of a split is removed before
  // its files, so that the earlier plan can still be resumed if this process is killed.
  void remove_earlier() const {
    std::vector<std::string> written;
    for (const char* split : split_names) written.push_back(formatted("{}.json", split));
    for (const char* split : split_names) {
      written.push_back(formatted("{}.bin", split));
      written.push_back(formatted("documents-{}.tsv", split));
    }
    written.insert(written.end(), {"tokenizer.json", "manifest.json"});
    for (const std::string& name : written) {
      for (const char* end : {"", ".tmp"}) {
        std::error_code error;
        fs::remove(in_partial(name + end), error);
        check(!error, "text", "{}/{}{}: cannot be removed: {}", shown_partial(), name, end, error.message());
      }
    }
  }

  // If two preparations start at once, one creates the folder, or finishes before the other begins.
  void lock_partial() {
    std::error_code error;
    fs::create_directories(partial_, error);
    check(!error, "text", "{}: cannot be made: {}", shown_partial(), error.message());
    lock_ = lock_folder("text", partial_);
    check(lock_.has_value(), "text", "{}: another process is preparing in it", shown_partial());
    check(settings_.force || !fs::exists(out_), "text", "{}: is there already: another process has just made it",
          escape_for_print(out_, 1000));
  }

  bool make_tokenizer() {
    const std::string path = in_partial("tokenizer.json");
    if (!fs::exists(path)) {
      if (!parts_ && !train()) return false;
      write_file_atomically(path, tokenizer_json(*parts_));
    }
    const std::string text = read_whole_file(path, std::uint64_t{1} << 30);
    tokenizer_ = std::make_unique<Tokenizer>(parse_tokenizer_json(text, path));
    end_of_text_ = end_token(tokenizer_->parts(), settings_.end_token, settings_.tokenizer);
    tokenizer_json_ = JsonValue::object({{"vocabulary", tokenizer_->vocabulary()},
                                         {"merges", tokenizer_->parts().merges.size()},
                                         {"pattern", tokenizer_->parts().pattern()},
                                         {"end_of_text", end_of_text_},
                                         {"checksum", checksum_text(crc32c(text))}});
    return true;
  }

  struct Document {
    const CorpusText* text;
    std::string bytes = {};
    std::vector<std::int32_t> ids = {};
    std::int64_t words = 0;
    std::optional<std::string> gone = {};  // why the text cannot be read again
  };

  // Calls work(thread, document) for all texts of a split, on all threads, and use(documents) after each batch. Skips
  // texts that have vanished or changed. Returns false when it was stopped.
  template <class Work, class Use>
  bool for_each_batch(const char* split, std::string_view stage, Work&& work, Use&& use) {
    const TextPointers texts = texts_of(split);
    std::uint64_t total = 0, done = 0;
    for (const CorpusText* text : texts) total += text->bytes;
    for (std::size_t next = 0; next < texts.size();) {
      if (observer_.stop != nullptr && *observer_.stop) return false;
      std::vector<Document> batch;
      for (std::uint64_t bytes = 0; next < texts.size() && batch.size() < batch_texts && bytes < batch_bytes; ++next) {
        bytes += texts[next]->bytes;
        done += texts[next]->bytes;
        batch.push_back({texts[next]});
      }
      in_parallel(batch, work);
      for (const Document& document : batch) {
        if (document.gone) drop(*document.text, *document.gone);
      }
      std::erase_if(batch, [](const Document& document) { return document.gone.has_value(); });
      use(batch);
      if (observer_.progress) observer_.progress(stage, done, total);
    }
    return true;
  }

  void read(Document& document) const {
    try {
      document.bytes = read_corpus_text(*document.text, settings_.rules.field);
    } catch (const Error& why) {
      document.gone = why.what();
    }
  }

  // Throws the Error of the first document whose text work() refused, with its place.
  template <class Work>
  void in_parallel(std::vector<Document>& documents, Work&& work) {
    std::vector<std::exception_ptr> errors(documents.size());
    std::atomic<std::size_t> next{0};
    parallel_for(thread_count(), [&](std::int64_t thread) {
      for (std::size_t index = next++; index < documents.size(); index = next++) {
        Document& document = documents[index];
        try {
          read(document);
          if (!document.gone) work(static_cast<std::size_t>(thread), document);
        } catch (...) {
          errors[index] = std::current_exception();
        }
      }
    });
    for (std::size_t index = 0; index < errors.size(); ++index) {
      if (!errors[index]) continue;
      try {
        std::rethrow_exception(errors[index]);
      } catch (const Error& error) {
        fail("text", "{}: {}", documents[index].text->place(), error.what());
      }
    }
  }

  // Drops a text that has vanished or changed since it was selected; with `strict` that is an error.
  void drop(const CorpusText& text, const std::string& why) {
    if (settings_.rules.strict) throw Error(why);
    dropped_.insert(&text);
    if (observer_.note) observer_.note(formatted("dropped: {}", why));
  }

  bool train() {
    BpeTraining training{.vocabulary = settings_.vocabulary, .min_count = settings_.min_count};
    if (!settings_.pattern.empty()) training.pattern = settings_.pattern;
    const SplitPattern pattern(training.pattern);
    const auto threads = static_cast<std::size_t>(thread_count());
    std::vector<std::unique_ptr<Splitter>> splitters(threads);
    for (auto& splitter : splitters) splitter = std::make_unique<Splitter>(pattern);
    std::vector<PieceCounts> found(threads);
    PieceCounts counts;
    bool noted = false;
    check(!texts_of("train").empty(), "text", "no text is left for training, so no tokenizer can be trained");
    const auto count = [&](std::size_t thread, Document& document) {
      count_pieces(*splitters[thread], document.bytes, found[thread]);
      document.bytes = {};
    };
    const bool whole = for_each_batch("train", "counting pieces", count, [&](const std::vector<Document>&) {
      // The sums do not depend on the thread that counted.
      for (PieceCounts& other : found) counts.add(std::exchange(other, {}));
      if (std::cmp_less_equal(counts.size(), settings_.piece_limit)) return;
      counts.drop_single();
      if (!noted && observer_.note)
        observer_.note(formatted("more than {} different pieces: those seen once are dropped", settings_.piece_limit));
      noted = true;
    });
    if (!whole) return false;
    training.progress = [&](std::int64_t tokens) {
      const bool tell = observer_.progress && tokens % 256 == 0;
      if (tell)
        observer_.progress("training", static_cast<std::uint64_t>(tokens),
                           static_cast<std::uint64_t>(settings_.vocabulary));
    };
    parts_ = train_bpe(counts, training);
    return true;
  }

  // The manifest's entry for the split; null when it was stopped.
  JsonValue encode_split(const char* name) {
    const std::string record_path = in_partial(formatted("{}.json", name));
    if (fs::exists(record_path)) return read_json(record_path);
    EncodedSplit split(partial_, name, token_bytes(tokenizer_->vocabulary()), end_of_text_);
    const auto encode = [&](std::size_t thread, Document& document) {
      // Reserves address space, not memory, so that the tokens of a long text are not copied as they grow.
      if (document.bytes.size() >= long_text) document.ids.reserve(document.bytes.size() + 1);
      encoders_[thread]->encode(document.bytes, document.ids);
      document.words = count_words(document.bytes);
    };
    const auto threads = static_cast<std::size_t>(thread_count());
    while (encoders_.size() < threads) encoders_.push_back(std::make_unique<Encoder>(*tokenizer_));
    if (!for_each_batch(name, name, encode, [&](const std::vector<Document>& documents) {
          for (const Document& document : documents) {
            split.add(*document.text, document.bytes, document.ids, document.words);
          }
        })) {
      return {};
    }
    const JsonValue record = split.finish();
    write_file_atomically(record_path, write_json(record, 2) + "\n");
    return record;
  }

  void finish() {
    std::error_code error;
    if (fs::exists(out_)) {
      std::string aside;
      for (int number = 1; aside.empty() || fs::exists(aside); ++number) aside = formatted("{}.old-{}", out_, number);
      fs::rename(out_, aside, error);
      check(!error, "text", "{}: cannot be moved aside: {}", escape_for_print(out_, 1000), error.message());
      if (observer_.note)
        observer_.note(formatted("{} was moved to {}", escape_for_print(out_, 1000), escape_for_print(aside, 1000)));
    }
    fs::rename(partial_, out_, error);
    check(!error, "text", "{}: cannot be made: {}", escape_for_print(out_, 1000), error.message());
    // Removed last: an interrupted preparation resumes from these files.
    for (const char* name : split_names) fs::remove(formatted("{}/{}.json", out_, name), error);
    fs::remove(out_ + "/plan.json", error);
  }

  std::string out_, partial_;
  const PrepareSettings& settings_;
  const PrepareObserver& observer_;
  std::optional<FileDescriptor> lock_;  // of the partial folder
  Corpus corpus_;
  JsonValue plan_, tokenizer_json_;
  std::optional<TokenizerParts> parts_;
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
          escape_for_print(out, 1000), escape_for_print(source.path, 1000));
  }
  return Preparation(folder, settings, observer).run();
}

}  // namespace tally
