// Language modelling: predict the next token of a text. `tally prepare` or another program has tokenised the text.
//
// A sequence is T + 1 neighbouring tokens: T are fed, each predicts its successor, and all of them count. There is no
// padding and no mask, and attention crosses document boundaries. With `documents` separate, earlier documents are
// masked for each document that begins in a sequence. It begins with the token between documents, which is also the
// last target of the previous document. Positions continue across documents.
//
// Training data is read in epochs. Epoch e starts at an offset in [0, T) and cuts the N tokens into W = floor((N - T) /
// T) windows. Neighbouring windows share one token, which is the last target of one and the first input of the next.
// Windows are read in random order; sequence i is window i mod W of epoch i / W. Offset and order depend only on (seed,
// e), so a resumed run needs no state. With `order` random, sequence i begins at a uniformly random token, independent
// of the others.
//
// Evaluation reads windows in order and scores each target once. With stride 0, windows of T tokens are adjacent, and
// the last is shorter. Otherwise windows end every S tokens, and the last S targets of each count (all targets of the
// first). With `after` = A the first A targets are only context, so that windows of different lengths can be compared
// on the same targets.
#include <algorithm>
#include <functional>
#include <mutex>

#include "core/error.hpp"
#include "core/math/random.hpp"
#include "core/utf8.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/data/task.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/normal_form.hpp"
#include "tasks/text/prepare/text_tokens.hpp"

namespace tally {
namespace {

struct TextOptions final : OptionsOf<TextOptions> {
  static constexpr bool reads_files = true;
  std::string data, validation, tokenizer;
  std::int64_t length = 256;
  std::int64_t stride = 0;
  std::int64_t after = 0;
  std::int64_t positions = 0;
  std::int64_t vocabulary = 0;
  std::string order = "epochs", documents = "joined", token_type = "auto", end_token;

  void visit(OptionVisitor& visitor) override {
    visitor.text("data", data,
                 "folder made by `tally prepare`, or token files of other programs: one file, or a folder with "
                 "train.bin, validation.bin (val.bin) and test.bin");
    visitor.text("validation", validation, "token file for evaluation, if --data is a token file for training");
    visitor.text("tokenizer", tokenizer, "tokenizer of token files from other programs");
    visitor.choice("token-type", token_type, {std::begin(token_format_names), std::end(token_format_names)},
                   token_format_help);
    visitor.text("end-token", end_token,
                 "for token files of other programs: special token, or id, that ends a document; default: the token "
                 "that `tally prepare` would choose");
    visitor.integer("length", length, "tokens T of a sequence", 1, 1 << 24);
    visitor.integer("stride", stride, "evaluation: step between windows; only the new targets of a window count; 0: T",
                    0, 1 << 24);
    visitor.integer("after", after, "evaluation: number of first targets that do not count", 0, 1 << 30);
    visitor.integer("positions", positions, "rows of learned position tables; 0: T", 0, 1 << 24);
    visitor.integer(
        "vocabulary", vocabulary,
        "vocabulary of the model, if larger than the tokenizer's or if there is no tokenizer; 0: the tokenizer's");
    visitor.choice("order", order, {"epochs", "random"},
                   "training: each window once per epoch, or windows with random starts");
    visitor.choice("documents", documents, {"joined", "separate"},
                   "joined: attention reaches earlier documents of the sequence; separate: it does not");
  }
};

// The windows of an evaluation. Window k feeds tokens first(k) .. end(k) - 1. Its last targets, up to token end(k),
// count.
struct Windows {
  std::int64_t tokens, length, stride, after;

  std::int64_t step() const { return stride > 0 ? stride : length; }
  // Targets of the first window that count; all its targets if `after` is 0.
  std::int64_t first_count() const { return std::min(after == 0 ? length : step(), tokens - 1 - after); }
  std::int64_t count() const {
    const std::int64_t targets = tokens - 1 - after;
    return targets <= 0 ? 0 : 1 + (targets - first_count() + step() - 1) / step();
  }
  // Targets are numbered by their token: targets begin(k) + 1 .. end(k) of window k count.
  std::int64_t begin(std::int64_t k) const { return k == 0 ? after : after + first_count() + (k - 1) * step(); }
  std::int64_t end(std::int64_t k) const { return std::min(after + first_count() + k * step(), tokens - 1); }
  // Adjacent windows do not overlap: the last window is as short as the remainder.
  std::int64_t first(std::int64_t k) const {
    return stride == 0 ? begin(k) : std::max<std::int64_t>(0, end(k) - length);
  }
};

class Text final : public Task, public SpecialTokens {
 public:
  Text(const TextOptions& options, const Seeds& seeds)
      : tokens_(sources_of(options)),
        length_(options.length),
        positions_(options.positions),
        seed_(seeds.training),
        random_(options.order == "random"),
        separate_(options.documents == "separate") {
    check(!separate_ || tokens_.end_of_text(), "text",
          "documents = separate: which token stands between documents is not known of {}; --tokenizer FILE or "
          "--end-token ID names it",
          tokens_.name());
    check(options.stride <= length_, "text", "stride {} is longer than the sequences of {} tokens", options.stride,
          length_);
    name_tokens(options);
    check(positions_ == 0 || positions_ >= length_, "text",
          "sequences of {} tokens are longer than the table of {} positions", length_, positions_);
    for (const auto& [name, file] : tokens_.splits()) {
      if (name == "train") continue;
      const Windows windows{file.size(), length_, options.stride, options.after};
      if (windows.count() == 0) continue;
      windows_.push_back(windows);
      splits_.push_back({name, formatted("{} tokens", with_commas(file.size())), windows.count(),
                         std::min(length_, file.size() - 1)});
    }
    // A tokenizer is enough for a model that is neither trained nor evaluated.
    if (tokens_.has_splits()) {
      check(!splits_.empty(), "text", "{} has no split to evaluate on with more than {} tokens", tokens_.name(),
            options.after + 1);
      // With evaluation windows requested, the training split may be too short for training. A data set of one file has
      // no training split.
      const bool evaluated_alone = tokens_.of_one_file() || options.stride > 0 || options.after > 0;
      if (!evaluated_alone) check_training();
    }
    splits_.insert(splits_.begin(), {"train",
                                     formatted("{}{}", with_commas(train_tokens()),
                                               random_ ? " tokens, from random starts" : " tokens, in epochs"),
                                     0, length_});
    windows_.insert(windows_.begin(), Windows{train_tokens(), length_, 0, 0});
  }

  const std::vector<std::string>& vocabulary() const override { return symbols_; }
  std::string vocabulary_record() const override {
    const std::string& checksum = tokens_.tokenizer_checksum();
    return formatted("{} tokens{}{}", symbols_.size(), checksum.empty() ? "" : ", ", checksum);
  }
  std::string data_record() const override { return tokens_.record(); }
  const std::vector<Split>& splits() const override { return splits_; }
  std::int64_t epoch() const override { return (train_tokens() - length_) / length_; }
  std::int64_t max_length() const override { return std::max(positions_, Task::max_length()); }

  Example example(std::string_view name, std::int64_t index) const override {
    split_holding(name, index);
    if (name == "train") {
      check_training();
      tokens_.verify(name);
      Example example = window(name, train_window(index), length_);
      std::ranges::fill(example.loss_mask, std::uint8_t{1});
      std::ranges::fill(example.score_mask, std::uint8_t{1});
      return example;
    }
    tokens_.verify(name);
    const Windows& windows = windows_of(name);
    const std::int64_t first = windows.first(index), end = windows.end(index);
    Example example = window(name, first, end - first);
    const auto from = windows.begin(index) - first;
    std::fill(example.loss_mask.begin() + from, example.loss_mask.end(), std::uint8_t{1});
    std::fill(example.score_mask.begin() + from, example.score_mask.end(), std::uint8_t{1});
    return example;
  }

  // The text of the tokens. Terminal control characters are escaped, and names of special tokens are unchanged.
  std::string text(const Example& example) const override { return join_symbols(symbols_, example.tokens, ""); }
  // Names of special tokens become those tokens.
  std::vector<std::int32_t> encode(std::string_view text) const override { return encode_allowing(text, specials_); }
  std::vector<std::int32_t> encode_allowing(std::string_view text,
                                            std::span<const std::string> allowed) const override {
    std::vector<std::int32_t> ids;
    Encoder(known_tokenizer()).encode(text, allowed, ids);
    return ids;
  }

  const Tokenizer* tokenizer() const override { return tokens_.tokenizer(); }

  std::vector<std::int32_t> beginning() const override {
    const std::optional<std::int32_t> end = tokens_.end_of_text();
    return end ? std::vector{*end} : std::vector<std::int32_t>{};
  }
  std::string_view bytes_of(std::int32_t token) const override {
    const Tokenizer* const tokenizer = tokens_.tokenizer();
    return tokenizer != nullptr && token < tokenizer->vocabulary() ? tokenizer->bytes_of(token) : std::string_view();
  }

  std::optional<TextCounts> text_counts(std::string_view name, std::int64_t count) const override {
    const Windows& windows = windows_of(name);
    TextCounts counts{.context = length_,
                      .stride = windows.step(),
                      .token_checksum = name == "train" ? "" : tokens_.checksum(name),
                      .tokenizer_checksum = tokens_.tokenizer_checksum()};
    if (count <= 0) return counts;
    const std::int64_t first = windows.begin(0) + 1, last = windows.end(count - 1);
    counts.tokens = last - first + 1;
    std::string text;
    std::vector<std::int32_t> ids;
    for (std::int64_t begin = first; begin <= last; begin += at_once) {
      ids.resize(static_cast<std::size_t>(std::min(at_once, last + 1 - begin)));
      tokens_.tokens(name).read(begin, ids);
      for (const std::int32_t id : ids) {
        const std::string_view bytes = bytes_of(id);
        counts.bytes += static_cast<std::int64_t>(bytes.size());
        counts.documents += id == tokens_.end_of_text();
        text += bytes;
      }
      // A line end separates words, so the text can be cut behind it.
      const std::size_t counted = begin + at_once > last ? text.size() : text.rfind('\n') + 1;  // npos + 1 is 0
      counts.words += count_words(std::string_view(text).substr(0, counted));
      text.erase(0, counted);
    }
    return counts;
  }

 private:
  static constexpr std::int64_t at_once = 1 << 16;

  static TextSources sources_of(const TextOptions& options) {
    check(!options.data.empty(), "text", "say which text: --data FOLDER, one that `tally prepare` made");
    return {.data = options.data,
            .validation = options.validation,
            .tokenizer = options.tokenizer,
            .vocabulary = options.vocabulary,
            .token_type = options.token_type,
            .end_token = options.end_token};
  }

  void name_tokens(const TextOptions& options) {
    const Tokenizer* const tokenizer = tokens_.tokenizer();
    const std::int64_t size = tokenizer != nullptr ? tokenizer->vocabulary() : tokens_.vocabulary();
    for (std::int64_t id = 0; id < size; ++id) {
      symbols_.push_back(tokenizer != nullptr ? escape_for_print(tokenizer->bytes_of(id)) : formatted("<|{}|>", id));
    }
    check(options.vocabulary == 0 || options.vocabulary >= size, "text",
          "vocabulary {} is less than the {} tokens of {}", options.vocabulary, size, tokens_.tokenizer_name());
    for (std::int64_t id = size; id < options.vocabulary; ++id) symbols_.push_back(formatted("<|unused-{}|>", id));
    if (tokenizer == nullptr) return;
    for (const SpecialToken& special : tokenizer->parts().specials) {
      symbols_[static_cast<std::size_t>(special.id)] = special.name;
      specials_.push_back(special.name);
    }
  }
  const Tokenizer& known_tokenizer() const {
    check(tokens_.tokenizer() != nullptr, "text",
          "nothing but the ids of {} is known; --tokenizer FILE says what they stand for", tokens_.name());
    return *tokens_.tokenizer();
  }

  std::int64_t train_tokens() const { return tokens_.has("train") ? tokens_.tokens("train").size() : 0; }
  void check_training() const {
    check(tokens_.has_splits(), "text",
          "{} is a tokenizer without a text; --data names one that `tally prepare` made with it", tokens_.name());
    check(
        !tokens_.of_one_file(), "text",
        "{} alone is what a model is evaluated on; to train on it, --task.validation names another file to evaluate on",
        tokens_.name());
    const std::int64_t tokens = train_tokens();
    check(tokens >= 2 * length_, "text", "{} has {} tokens; sequences of {} need at least {}",
          tokens > 0 ? tokens_.tokens("train").name() : tokens_.name() + "/train.bin", tokens, length_, 2 * length_);
  }
  const Windows& windows_of(std::string_view name) const {
    const auto found = std::ranges::find(splits_, name, &Split::name);
    check(found != splits_.end(), "text", "there is no split '{}'", name);
    return windows_[static_cast<std::size_t>(found - splits_.begin())];
  }

  // Tokens first .. first + length - 1 are fed; the targets are one token further on.
  Example window(std::string_view split, std::int64_t first, std::int64_t length) const {
    Example example;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length) + 1);
    tokens_.tokens(split).read(first, tokens);
    example.targets.assign(tokens.begin() + 1, tokens.end());
    tokens.pop_back();
    example.tokens = std::move(tokens);
    for (std::size_t t = 1; separate_ && t < example.tokens.size(); ++t) {
      if (example.tokens[t] == tokens_.end_of_text()) example.starts.push_back(static_cast<std::int32_t>(t));
    }
    example.loss_mask.assign(example.tokens.size(), 0);
    example.score_mask.assign(example.tokens.size(), 0);
    return example;
  }

  // The first token of sequence `index` of the training stream.
  std::int64_t train_window(std::int64_t index) const {
    const std::int64_t tokens = train_tokens(), windows = epoch();
    if (random_) {
      const PhiloxBlock bits =
          RandomStream{seed_, stream_of("text, random places")}.block(static_cast<std::uint64_t>(index));
      const std::uint64_t together = std::uint64_t{bits[0]} << 32 | bits[1];
      const double uniform = static_cast<double>(together >> 11) * 0x1p-53;
      return static_cast<std::int64_t>(uniform * static_cast<double>(tokens - length_));
    }
    const std::int64_t number = index / windows;
    const std::scoped_lock lock(mutex_);
    if (number != epoch_) {
      Rng rng({seed_, stream_of("text"), static_cast<std::uint32_t>(number)});
      offset_ = rng.below(static_cast<std::uint32_t>(length_));
      order_ = random_order(windows, rng);
      epoch_ = number;
    }
    return offset_ + order_[static_cast<std::size_t>(index % windows)] * length_;
  }

  TextTokens tokens_;
  std::int64_t length_, positions_;
  std::uint64_t seed_;
  bool random_, separate_;
  std::vector<std::string> symbols_, specials_;
  std::vector<Split> splits_;     // train first, without splits that are too short
  std::vector<Windows> windows_;  // of each
  mutable std::mutex mutex_;
  mutable std::int64_t epoch_ = -1, offset_ = 0;
  mutable std::vector<std::int64_t> order_;  // of the epoch's windows
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    text, TextOptions, Text, "predict the next token of a text",
    "T consecutive tokens of a text made by `tally prepare` (--data FOLDER); each predicts the next one, and all are\n"
    "scored. Training takes windows of the text in epochs, in random order;\n"
    "evaluation takes all of a split, side by side or with a stride, and gives perplexity, bits per byte and word\n"
    "perplexity with the context, the stride and what was counted.",
    "CoPE (arXiv 2405.18719), section 5.4");
