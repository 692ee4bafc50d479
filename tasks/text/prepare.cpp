#include "tasks/text/prepare.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "core/cpu/parallel.hpp"
#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/checksum.hpp"
#include "core/io/folder_lock.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"
#include "tasks/text/bpe_training.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/encoded_split.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/text_border.hpp"
#include "tasks/text/text_parts.hpp"
#include "tasks/text/token_file.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tasks/text/words.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t batch_bytes = 32 << 20;  // of text that is in memory at once, and no more than this many parts
constexpr std::size_t batch_parts = 4096;
constexpr std::uint64_t save_bytes = 128 << 20;  // after so much text what is encoded is saved: some ten seconds
constexpr const char* split_names[] = {"train", "validation", "test"};

class Preparation {
 public:
  Preparation(const std::string& out, const PrepareSettings& settings, const PrepareObserver& observer)
      : out_(out), partial_(out + ".partial"), settings_(settings), observer_(observer) {}

  JsonValue run() {
    check(settings_.force || !fs::exists(out_), "text", escape_for_print(out_, 1000),
          ": is there already; --force moves it aside");
    corpus_ = select_texts(settings_.sources, settings_.rules, [&](std::uint64_t bytes) {
      if (observer_.progress) observer_.progress("reading", bytes, 0);
      return observer_.stop == nullptr || !*observer_.stop;
    });
    if (observer_.stop != nullptr && *observer_.stop) return {};
    if (corpus_.texts.empty()) refuse_empty();
    open_partial();
    if (!make_tokenizer()) return {};
    JsonValue splits = JsonValue::object();
    std::int64_t documents = 0;
    for (const char* name : split_names) {
      const JsonValue split = without_changed([&] { return encode_split(name); });
      if (split.is_null()) return {};
      documents += split.integer("documents");
      splits.set(name, split);
    }
    // Those that have vanished or changed since they were selected.
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
      sources += concat(sources.empty() ? "" : ", ", escape_for_print(source.path, 200));
    }
    fail("text", sources, ": no text is left; of ", corpus_.found, " found, ", corpus_.by_path,
         " were dropped by path, ", corpus_.by_size, " by size, ", corpus_.by_invalid, " as not UTF-8, ",
         corpus_.by_line, " by a line, and ", corpus_.unreadable, " could not be read");
  }

  std::string in_partial(std::string_view name) const { return concat(partial_, "/", name); }
  std::string shown_partial() const { return escape_for_print(partial_, 1000); }

  TextPointers texts_of(std::string_view split) const {
    TextPointers texts;
    for (const CorpusText& text : corpus_.texts) {
      if (text.split == split && !dropped_.contains(&text)) texts.push_back(&text);
    }
    return texts;
  }

  // What the result depends on; a partial folder of another plan is of no use.
  void open_partial() {
    std::uint32_t sum = 0;
    for (const CorpusText& text : corpus_.texts) {
      sum = crc32c(concat(text.path, "\n", text.split, "\n", text.bytes, "\n", text.checksum, "\n"), sum);
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
    check(fs::is_empty(partial_) || fs::exists(path), "text", shown_partial(),
          ": is in the way; it is no folder of an interrupted preparation");
    if (fs::exists(path) && read_whole_file(path, 1 << 24) == text) return;
    // The folder itself stays: it is what is locked.
    for (const fs::directory_entry& entry : fs::directory_iterator(partial_)) fs::remove_all(entry.path());
    write_file_atomically(path, text);
  }

  // Of two preparations at once one makes the folder, or is done before the other begins.
  void lock_partial() {
    std::error_code error;
    fs::create_directories(partial_, error);
    check(!error, "text", shown_partial(), ": cannot be made: ", error.message());
    lock_ = lock_folder("text", partial_);
    check(lock_.has_value(), "text", shown_partial(), ": another process is preparing in it");
    check(settings_.force || !fs::exists(out_), "text", escape_for_print(out_, 1000),
          ": is there already: another process has just made it");
  }

  bool make_tokenizer() {
    const std::string path = in_partial("tokenizer.json");
    if (!fs::exists(path)) {
      if (!parts_ && !without_changed([this] { return train(); })) return false;
      write_file_atomically(path, tokenizer_json(*parts_));
    }
    const std::string text = read_whole_file(path, std::uint64_t{1} << 30);
    tokenizer_ = std::make_unique<Tokenizer>(parse_tokenizer_json(text, path));
    const std::optional<std::int32_t> end = tokenizer_->parts().end_of_text();
    check(end.has_value(), "text", "the tokenizer has no ", end_of_text_name, " (or ", end_of_sequence_name,
          "), which parts the documents");
    end_of_text_ = *end;
    tokenizer_json_ = JsonValue::object({{"vocabulary", tokenizer_->vocabulary()},
                                         {"merges", tokenizer_->parts().merges.size()},
                                         {"pattern", tokenizer_->parts().pattern()},
                                         {"end_of_text", end_of_text_},
                                         {"checksum", checksum_text(crc32c(text))}});
    return true;
  }

  // Calls use(parts) for batches of parts, which are cut by the sizes of texts alone, but pass_over(part) for each of
  // the first `done_before`. False when it was stopped.
  template <class Use>
  bool for_each_batch(const TextPointers& texts, bool with_borders, std::string_view stage, Use&& use,
                      std::int64_t done_before = 0, const std::function<void(const TextPart&)>& pass_over = {}) {
    std::uint64_t total = 0, done = 0;
    for (const CorpusText* text : texts) total += text->bytes;
    TextParts all(texts, with_borders, [this](const CorpusText& text, const Error& why) { drop(text, why); });
    std::optional<TextPart> next = all.next();
    for (std::int64_t part = 0; part < done_before; ++part, next = all.next()) {
      check(next.has_value(), "text", shown_partial(), ": more of '", stage, "' was encoded than there is; remove it");
      pass_over(*next);
      done += next->bytes.size();
    }
    while (next) {
      if (observer_.stop != nullptr && *observer_.stop) return false;
      std::vector<TextPart> parts;
      for (std::uint64_t bytes = 0; next && parts.size() < batch_parts && bytes < batch_bytes; next = all.next()) {
        bytes += next->bytes.size();
        parts.push_back(std::move(*next));
      }
      use(parts);
      for (const TextPart& part : parts) done += part.bytes.size();
      if (observer_.progress) observer_.progress(stage, done, total);
    }
    return true;
  }

  // The text has vanished or is another one since it was selected; with `strict` that is an error.
  void drop(const CorpusText& text, const Error& why) {
    if (settings_.rules.strict) throw Error(why.what());
    if (dropped_.insert(&text).second && observer_.note) observer_.note(concat("dropped: ", why.what()));
  }

  // Calls work() anew, without it, whenever a text has changed of which parts had been used.
  template <class Work>
  std::invoke_result_t<Work> without_changed(Work&& work) {
    while (true) {
      try {
        return work();
      } catch (const ChangedText& changed) {
        drop(changed.text(), changed);
      }
    }
  }

  bool train() {
    BpeTraining training{.vocabulary = settings_.vocabulary, .min_count = settings_.min_count};
    if (!settings_.pattern.empty()) training.pattern = settings_.pattern;
    const SplitPattern pattern(training.pattern);
    PieceCounts counts;
    bool noted = false;
    const TextPointers texts = texts_of("train");
    check(!texts.empty(), "text", "no text is left for training, so no tokenizer can be trained");
    const bool whole = for_each_batch(
        texts, has_text_borders(training.pattern), "counting pieces", [&](const std::vector<TextPart>& parts) {
          std::vector<std::string_view> contents;
          for (const TextPart& part : parts) contents.push_back(part.bytes);
          count_pieces(pattern, contents, counts);
          if (std::cmp_less_equal(counts.size(), settings_.piece_limit)) return;
          counts.drop_single();
          if (!noted && observer_.note)
            observer_.note(
                concat("more than ", settings_.piece_limit, " different pieces: those seen once are dropped"));
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

  // What the manifest says of the split; null when it was stopped.
  JsonValue encode_split(const std::string& name) {
    const std::string record_path = in_partial(name + ".json");
    if (fs::exists(record_path)) return read_json(record_path);
    // Where a text was dropped, what is saved has parts of another list of texts.
    EncodedSplit split(partial_, name, token_bytes(tokenizer_->vocabulary()), end_of_text_, dropped_.empty());
    std::uint64_t unsaved = 0;
    const auto encode = [&](const std::vector<TextPart>& parts) {
      std::vector<std::vector<std::int32_t>> ids(parts.size());
      std::vector<std::int64_t> word_counts(parts.size());
      encode_all(parts, ids, word_counts);
      for (std::size_t index = 0; index < parts.size(); ++index) {
        split.add(parts[index], std::exchange(ids[index], {}), word_counts[index]);
        unsaved += parts[index].bytes.size();
      }
      if (unsaved < save_bytes || !dropped_.empty()) return;
      split.save();
      unsaved = 0;
    };
    const bool with_borders = has_text_borders(tokenizer_->parts().pattern());
    if (!for_each_batch(texts_of(name), with_borders, name, encode, split.saved_parts(), [&](const TextPart& part) {
          // One that has vanished since: all is encoded anew, without it.
          if (!dropped_.empty()) throw ChangedText(**dropped_.begin(), "");
          split.pass_over(part);
        })) {
      if (dropped_.empty()) split.save();
      return {};
    }
    const JsonValue record = split.finish();
    write_file_atomically(record_path, write_json(record, 2) + "\n");
    split.forget_saved();
    return record;
  }

  void encode_all(const std::vector<TextPart>& parts, std::vector<std::vector<std::int32_t>>& ids,
                  std::vector<std::int64_t>& word_counts) {
    const auto threads = static_cast<std::size_t>(thread_count());
    while (encoders_.size() < threads) encoders_.push_back(std::make_unique<Encoder>(*tokenizer_));
    std::vector<std::exception_ptr> errors(parts.size());
    std::atomic<std::size_t> next{0};
    parallel_for(static_cast<std::int64_t>(threads), [&](std::int64_t worker) {
      for (std::size_t index = next++; index < parts.size(); index = next++) {
        try {
          encoders_[static_cast<std::size_t>(worker)]->encode(parts[index].bytes, ids[index]);
          word_counts[index] = count_words(parts[index].bytes);
        } catch (...) {
          errors[index] = std::current_exception();
        }
      }
    });
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  void finish() {
    std::error_code error;
    if (fs::exists(out_)) {
      std::string aside;
      for (int number = 1; aside.empty() || fs::exists(aside); ++number) aside = concat(out_, ".old-", number);
      fs::rename(out_, aside, error);
      check(!error, "text", escape_for_print(out_, 1000), ": cannot be moved aside: ", error.message());
      if (observer_.note)
        observer_.note(concat(escape_for_print(out_, 1000), " was moved to ", escape_for_print(aside, 1000)));
    }
    fs::rename(partial_, out_, error);
    check(!error, "text", escape_for_print(out_, 1000), ": cannot be made: ", error.message());
    // Last: up to here an interrupted preparation goes on from them.
    for (const char* name : split_names) fs::remove(concat(out_, "/", name, ".json"), error);
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
  std::set<const CorpusText*> dropped_;  // those that had changed
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
    check(below.empty() || *below.begin() == "..", "text", escape_for_print(out, 1000), ": lies in the source ",
          escape_for_print(source.path, 1000), ", whose texts it would be one of");
  }
  return Preparation(folder, settings, observer).run();
}

}  // namespace tally
