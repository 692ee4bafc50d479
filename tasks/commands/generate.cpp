// tally generate: continues a text with a trained model, token by token, from its own samples.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/data/task.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

struct GenerateSettings {
  std::string run, checkpoint = "newest", prompt, prompt_file, stop, full = "stop";
  std::int64_t count = 200, samples = 1, seed = 1;
  bool raw = false;
  std::vector<std::string> specials;
  SamplingOptions sampling;
};

std::string prompt_of(const GenerateSettings& settings) {
  if (settings.prompt_file.empty()) return settings.prompt;
  if (settings.prompt_file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  return as_usage([&] { return read_whole_file(settings.prompt_file, std::uint64_t{1} << 30); });
}

// One generated text and its state.
struct Text {
  TextStream shown;
  std::vector<std::int32_t> ids = {};  // generated so far
  std::vector<double> log_probabilities = {};
  std::string bytes = {};
  bool done = false;
};

class Generator {
 public:
  Generator(const TrainedModel& trained, const GenerateSettings& settings, const CommonOptions& common)
      : trained_(trained),
        settings_(settings),
        common_(common),
        imported_(read_imported(trained.folder.path())),
        prompt_(tokens_of(prompt_of(settings))) {
    for (std::int64_t n = 0; n < settings.samples; ++n) {
      texts_.push_back({.shown = TextStream(settings.stop, settings.raw || common.json)});
    }
  }

  // Generates until `count` tokens exist or every text has ended.
  void run() {
    const std::atomic<bool>& stop = watch_signals();
    const NoGrad no_grad;
    const auto begin = std::chrono::steady_clock::now();
    begin_with_prompt();
    for (std::int64_t n = 0; n < settings_.count && !stop.load() && !all_done(); ++n) {
      std::vector<std::int32_t> chosen;
      for (std::size_t text = 0; text < texts_.size(); ++text) chosen.push_back(choose(text, n));
      ++made_;
      if (n + 1 == settings_.count || all_done()) break;
      if (!go_on(chosen)) break;
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (Text& text : texts_) print(text, text.shown.finish());
  }

  Result result() {
    if (streams() && !settings_.raw) std::fputs("\n", stdout);
    const double rate = seconds_ > 0 ? static_cast<double>(made_ * settings_.samples) / seconds_ : 0;
    if (!common_.quiet) {
      std::fflush(stdout);
      std::fprintf(stderr, "%s tokens in %.1f s, %s tokens/s%s\n", with_commas(made_ * settings_.samples).c_str(),
                   seconds_, short_number(rate).c_str(), note_.c_str());
    }
    JsonValue samples = JsonValue::array();
    std::string text;
    for (std::size_t n = 0; n < texts_.size(); ++n) {
      JsonValue ids = JsonValue::array(), logs = JsonValue::array();
      for (const std::int32_t id : texts_[n].ids) ids.push(id);
      for (const double log : texts_[n].log_probabilities) logs.push(log);
      samples.push(JsonValue::object({{"ids", std::move(ids)},
                                      {"text", with_replacements(texts_[n].bytes)},
                                      {"log_probabilities", std::move(logs)}}));
      if (!streams()) text += formatted("{}--- {}\n{}\n", n == 0 ? "" : "\n", n + 1, texts_[n].bytes);
    }
    const int code = signal_exit_code();
    return {.code = code,
            .value = common_.json ? JsonValue::object({{"run", trained_.folder.path()},
                                                       {"step", trained_.step},
                                                       {"prompt_tokens", prompt_.size()},
                                                       {"tokens_per_second", rate},
                                                       {"samples", std::move(samples)}})
                                  : JsonValue{},
            .text = std::move(text)};
  }

 private:
  bool streams() const { return texts_.size() == 1 && !common_.json; }
  bool all_done() const {
    return std::ranges::all_of(texts_, [](const Text& text) { return text.done; });
  }

  std::vector<std::int32_t> tokens_of(const std::string& prompt) const {
    std::vector<std::int32_t> tokens = prompt.empty() ? beginning() : as_usage([&] { return encoded(prompt); });
    if (tokens.empty()) throw UsageError("[generate] the prompt is empty; say what to go on from with --prompt");
    return tokens;
  }

  // The first token that an imported model's own library adds.
  std::vector<std::int32_t> beginning() const {
    if (imported_ && imported_->begin) return {static_cast<std::int32_t>(*imported_->begin)};
    return trained_.task->beginning();
  }

  // Whether the token ends a text. It also begins the next one; an imported model may have several end tokens.
  bool ends(std::int32_t id) const {
    const std::vector<std::int32_t> end = trained_.task->beginning();
    if (!end.empty() && id == end.front()) return true;
    return imported_ && std::ranges::find(imported_->ends, id) != imported_->ends.end();
  }

  // Encodes the prompt. Names of special tokens count as plain text unless they are allowed.
  std::vector<std::int32_t> encoded(const std::string& prompt) const {
    const auto* text = dynamic_cast<const SpecialTokens*>(trained_.task.get());
    if (text != nullptr) return text->encode_allowing(prompt, settings_.specials);
    check(settings_.specials.empty(), "generate", "--specials: the task {} has no special tokens",
          trained_.config.task->name);
    return trained_.task->encode(prompt);
  }

  // Feeds the prompt once, whatever the number of texts.
  void begin_with_prompt() {
    std::vector<std::int32_t> tokens = prompt_;
    while (settings_.full == "slide" && tokens.size() > 1 && !takes(static_cast<std::int64_t>(tokens.size()))) {
      tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(tokens.size() / 2));
    }
    if (tokens.size() < prompt_.size()) {
      tell_beside(formatted("of the prompt's {} tokens the model takes the last {}", prompt_.size(), tokens.size()));
    }
    feed(tokens, 1);
    if (state_.length > 0 && state_.layers.empty()) {
      tell_beside(formatted("each token computes the whole text anew: {} keeps nothing to go on from",
                            trained_.config.model.attention == "composed"
                                ? "attention in composed form"
                                : formatted("a model with the encoding {}", trained_.config.encoding.text())));
    }
    repeat();
  }

  // Prints a note to stderr, apart from the text.
  void tell_beside(const std::string& line) const {
    if (!common_.quiet) std::fprintf(stderr, "%s\n", line.c_str());
  }

  bool takes(std::int64_t length) const {
    try {
      trained_.model->check_length(length);
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  // Feeds the next tokens of `rows` texts, stored text after text, to the model.
  void feed(const std::vector<std::int32_t>& tokens, std::int64_t rows) {
    const Tensor all = Tensor::from(tokens, {rows, static_cast<std::int64_t>(tokens.size()) / rows});
    const std::int64_t length = all.size(1);
    trained_.model->check_length(state_.length + length);
    // The logits of all these tokens are in memory at the same time.
    constexpr std::int64_t most_logits = 1 << 24;
    const std::int64_t at_once = std::clamp<std::int64_t>(most_logits / (rows * trained_.model->vocabulary()), 1, 256);
    for (std::int64_t begin = 0; begin < length && signal_exit_code() == 0; begin += at_once) {
      take(trained_.model->step(slice(all, 1, begin, std::min(begin + at_once, length)), state_));
    }
  }

  // Copies the state for each text. The first axis of all cached tensors is the sequence.
  void repeat() {
    const auto samples = static_cast<std::int64_t>(texts_.size());
    if (samples == 1) return;
    const auto repeated = [&](const Tensor& x) {
      Shape shape = x.shape();
      shape[0] = samples;
      return broadcast_to(x, shape).clone();
    };
    for (KvCache& layer : state_.layers) {
      for (auto& [name, kept] : layer) kept.state() = repeated(kept.tensor());
    }
    if (state_.tokens.defined()) state_.tokens = repeated(state_.tokens);
    const std::vector<double> one = logits_;
    for (std::int64_t n = 1; n < samples; ++n) logits_.insert(logits_.end(), one.begin(), one.end());
  }

  // Keeps the logits of the last token.
  void take(const Tensor& logits) {
    logits_ = cast(slice(logits, 1, logits.size(1) - 1, logits.size(1)), DType::f64).to_vector<double>();
  }

  std::int32_t choose(std::size_t n, std::int64_t token) {
    Text& text = texts_[n];
    const std::size_t size = logits_.size() / texts_.size();
    const Sampled chosen =
        sample(std::span(logits_).subspan(n * size, size), settings_.sampling,
               sampling_uniform(static_cast<std::uint64_t>(settings_.seed), token, static_cast<std::int64_t>(n)));
    if (text.done) return chosen.id;
    if (ends(chosen.id)) {
      text.done = true;
      return chosen.id;
    }
    text.ids.push_back(chosen.id);
    text.log_probabilities.push_back(chosen.log_probability);
    print(text, text.shown.add(trained_.task->bytes_of(chosen.id)));
    text.done = text.shown.stopped();
    return chosen.id;
  }

  void print(Text& text, const std::string& more) const {
    text.bytes += more;
    if (!streams() || more.empty()) return;
    std::fputs(more.c_str(), stdout);
    std::fflush(stdout);
  }

  // Feeds the chosen tokens. When the model's length is reached, either stops or restarts from the last half of the
  // text. Returns whether it continued.
  bool go_on(const std::vector<std::int32_t>& chosen) {
    try {
      trained_.model->check_length(state_.length + 1);
    } catch (const Error& error) {
      if (settings_.full == "stop") {
        note_ = formatted("; ended: {}", error.what());
        return false;
      }
      const auto half = static_cast<std::size_t>(std::max<std::int64_t>(1, state_.length / 2));
      state_ = {};
      std::vector<std::int32_t> all;
      for (std::size_t n = 0; n < texts_.size(); ++n) {
        std::vector<std::int32_t> seen = prompt_;
        seen.insert(seen.end(), texts_[n].ids.begin(), texts_[n].ids.end());
        if (texts_[n].done) seen.resize(prompt_.size() + static_cast<std::size_t>(made_), chosen[n]);
        all.insert(all.end(), seen.end() - static_cast<std::ptrdiff_t>(half), seen.end());
      }
      feed(all, std::ssize(chosen));
      return true;
    }
    const std::int64_t trained_length = trained_.task->splits().front().length;
    if (state_.length >= trained_length)
      note_ = formatted("; beyond the {} tokens that it was trained on", trained_length);
    feed(chosen, std::ssize(chosen));
    return true;
  }

  const TrainedModel& trained_;
  const GenerateSettings& settings_;
  const CommonOptions& common_;
  std::optional<ImportedRecord> imported_;
  std::vector<std::int32_t> prompt_;
  std::vector<Text> texts_;
  GenerationState state_;
  std::vector<double> logits_;  // [samples, vocabulary], of the last token
  std::int64_t made_ = 0;
  double seconds_ = 0;
  std::string note_;
};

}  // namespace

std::function<Result()> declare_generate(CommandLine& line) {
  const auto settings = std::make_shared<GenerateSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  line.add("--prompt", &settings->prompt, "text to continue; empty: the beginning of a text");
  line.add("--prompt-file", &settings->prompt_file, "the same from a file, or - from the standard input",
           {.excludes = {"--prompt"}});
  line.add("--count", &settings->count, "tokens at most", {.least = 1, .most = 1 << 24});
  // At temperature 0 the largest logit is chosen, so the other sampling options have no effect.
  const std::vector<std::string> drawn{"--temperature=0"};
  for (const OptionInfo& option : list_options(settings->sampling)) {
    line.add(formatted("--{}", option.name),
             [settings, name = option.name](const std::string& value) {
               as_usage([&] { set_option(settings->sampling, "generate", name, value); });
             },
             option.help_with_range(),
             {.excludes = option.name == "temperature" ? std::vector<std::string>{} : drawn,
              .usual = to_text(option.value)});
  }
  line.add("--seed", &settings->seed, "random seed: the same seed gives the same text",
           {.least = 0, .excludes = drawn});
  line.add("--samples", &settings->samples, "texts from the same prompt", {.least = 1, .most = 1024});
  line.add("--specials", &settings->specials,
           "on text: treat the name of this special token in the prompt as the token; default: as ordinary text");
  line.add("--stop", &settings->stop, "stop before this text");
  line.add("--full", &settings->full, "at the model's longest text: stop, or continue from its second half",
           {.allowed = {"stop", "slide"}});
  line.add("--raw", &settings->raw, "print raw bytes: no escapes and no final line end");
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings, &common = line.common] {
    const TrainedModel trained = load_trained(settings->run, settings->checkpoint);
    Generator generator(trained, *settings, common);
    generator.run();
    return generator.result();
  };
}

}  // namespace tally
