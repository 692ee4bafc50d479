#include "tasks/command_line/progress.hpp"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/terminal.hpp"

namespace tally {
namespace {

constexpr double redraw_seconds = 0.1, plain_line_seconds = 10;

// Columns of a terminal; 0 if unknown.
std::size_t width_of(std::FILE* terminal) {
  winsize size{};
  return ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

std::string duration_text(double seconds) {
  char buffer[48];
  if (seconds < 60) {
    std::snprintf(buffer, sizeof buffer, "%.1f s", seconds);
  } else if (seconds < 3600) {
    const auto whole = static_cast<int>(seconds);
    std::snprintf(buffer, sizeof buffer, "%d min %d s", whole / 60, whole % 60);
  } else {
    const auto minutes = static_cast<long>(seconds / 60);
    std::snprintf(buffer, sizeof buffer, "%ld h %ld min", minutes / 60, minutes % 60);
  }
  return buffer;
}

std::int64_t peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

namespace {

std::string text_evaluation_text(const Evaluation& e, std::FILE* stream, bool details) {
  const TextCounts& text = *e.text;
  const std::optional<double> error = e.loss_error();
  const std::string perplexity =
      styled(exponential_text(e.loss), std::isfinite(e.loss) ? Style::bold : Style::red, stream);
  const std::string begin =
      formatted("loss {}{}, perplexity {} of {} tokens", short_number(e.loss),
                error ? formatted(" +- {}", short_number(*error, 2)) : "", perplexity, with_commas(text.tokens));
  if (!details) return begin;
  return formatted(
      "{}{}{}; context {}, stride {}; tokens {}, tokenizer {}; {} wrong", begin,
      text.bytes > 0 ? formatted("; {} bits per byte of {}", short_number(e.bits_per_byte()), with_commas(text.bytes))
                     : "",
      text.words > 0
          ? formatted("; word perplexity {} of {}", exponential_text(e.nats_per_word()), with_commas(text.words))
          : "",
      text.context, text.stride, text.token_checksum,
      text.tokenizer_checksum.empty() ? "unknown" : text.tokenizer_checksum, percent_text(e.token_error()));
}

}  // namespace

std::string evaluation_text(const Evaluation& e, std::FILE* stream, bool details) {
  if (e.text) return text_evaluation_text(e, stream, details);
  constexpr std::size_t width = 6;
  constexpr double good = 0.01;
  const std::string percent = percent_text(e.token_error()), pad(width - std::min(width, percent.size()), ' ');
  const Style style = !std::isfinite(e.loss) ? Style::red : e.token_error() < good ? Style::green : Style::bold;
  const std::string error = pad + styled(percent, style, stream);
  if (!details) return formatted("{} of {} tokens wrong, loss {}", error, with_commas(e.scored), short_number(e.loss));
  const std::string rest = e.generated ? rate_text(e.wrong_sequences, e.sequences, "sequences") + "; generated"
                                       : formatted("{} of {} sequences; loss {}", with_commas(e.wrong_sequences),
                                                   with_commas(e.sequences), short_number(e.loss));
  return formatted("{} wrong ({}); {}", error, rate_text(e.wrong, e.scored, "tokens"), rest);
}

ProgressPrinter::ProgressPrinter(bool quiet, bool to_stderr)
    : quiet_(quiet), out_(to_stderr ? stderr : stdout), terminal_(isatty(fileno(out_)) == 1) {}

ProgressPrinter::~ProgressPrinter() { clear_line(); }

void ProgressPrinter::clear_line() {
  if (!line_drawn_) return;
  std::fprintf(out_, "\r\033[K");
  std::fflush(out_);
  line_drawn_ = false;
}

void ProgressPrinter::print(const std::string& text) {
  clear_line();
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void ProgressPrinter::message(const std::string& text) { print(printable(text)); }

std::string progress_line(std::vector<ProgressField> fields, std::size_t width) {
  constexpr std::size_t between = 2;
  const auto too_wide = [&] {
    std::size_t columns = 0;
    for (const ProgressField& field : fields) columns += field.text.size() + between;
    return columns > width + between;
  };
  while (width > 0 && fields.size() > 1 && too_wide()) {
    fields.erase(std::ranges::min_element(fields, {}, &ProgressField::importance));
  }
  std::string line;
  for (const ProgressField& field : fields) line += formatted("{}{}", line.empty() ? "" : "  ", field.text);
  return line;
}

void ProgressPrinter::started(const RunConfig& config, const SequenceModel& model, std::int64_t from_step) {
  first_step_ = from_step;
  steps_ = config.run.steps;
  started_ = last_drawn_ = Clock::now();
  if (quiet_) return;
  const auto task = config.make_task();
  const std::int64_t tokens = config.run.batch * task->splits().front().length;
  tokens_per_step_ = static_cast<double>(tokens);
  const std::int64_t interval = config.eval_interval(), last = steps_ - 1;  // the last step evaluates whole splits
  const std::int64_t evaluations = std::max<std::int64_t>(0, last / interval - std::min(from_step, last) / interval);
  for (const Split& split : std::span(task->splits()).subspan(1)) {
    const std::int64_t count = config.run.eval_count == 0 ? split.count : std::min(split.count, config.run.eval_count);
    const std::int64_t sequences = evaluations * count + split.count * (config.run.eval_generated ? 2 : 1);
    evaluation_.all_tokens += static_cast<double>(sequences * split.length);
    split_width_ = std::max(split_width_, split.name.size());
  }
  sequences_of_epoch_ = task->epoch();
  print(formatted("{} with {}: {} parameters, {} tokens a step, device {}, BLAS {}, {}{}", config.task->name,
                  config.label(), with_commas(model.parameter_count()), with_commas(tokens), model.device(),
                  blas_info().core, thread_count(), thread_count() == 1 ? " thread" : " threads"));
  if (from_step > 0) print(formatted("continues from step {} of {}", from_step, steps_));
}

// "epoch 1.25": how often the training's text or set has been seen; empty without epochs.
std::string ProgressPrinter::epoch_text(std::int64_t sequences) const {
  if (sequences_of_epoch_ <= 0) return "";
  char text[48];
  std::snprintf(text, sizeof text, "epoch %.2f",
                static_cast<double>(sequences) / static_cast<double>(sequences_of_epoch_));
  return text;
}

bool ProgressPrinter::is_due(bool last) {
  const Clock::time_point now = Clock::now();
  const double since = std::chrono::duration<double>(now - last_drawn_).count();
  if (since < (terminal_ ? redraw_seconds : plain_line_seconds) && !last) return false;
  last_drawn_ = now;
  return true;
}

void ProgressPrinter::draw(std::vector<ProgressField> fields) {
  std::erase_if(fields, [](const ProgressField& field) { return field.text.empty(); });
  if (!terminal_) return print(progress_line(std::move(fields), 0));
  const std::string line = progress_line(std::move(fields), width_of(out_));
  std::fprintf(out_, "\r\033[K\033[?7l%s\033[?7h", line.c_str());  // cut where the terminal ends, not wrapped
  std::fflush(out_);
  line_drawn_ = true;
}

std::string ProgressPrinter::left_text(std::int64_t step) const {
  // Until an evaluation was measured: a training step takes about three times as long per token.
  const double guess = tokens_per_step_ > 0 ? seconds_per_step_ / tokens_per_step_ / 3 : 0;
  const double per_token = evaluation_.tokens > 0 ? evaluation_.seconds / evaluation_.tokens : guess;
  const double tokens = std::max(0.0, evaluation_.all_tokens - evaluation_.tokens);
  return formatted("{} left",
                   duration_text(seconds_per_step_ * static_cast<double>(steps_ - step) + per_token * tokens));
}

void ProgressPrinter::stepped(const StepReport& report) {
  if (first_tokens_ < 0) first_tokens_ = report.tokens, first_seconds_ = report.seconds;
  tokens_ = report.tokens;
  seconds_ = report.seconds;
  const double span = seconds_ - first_seconds_;
  if (report.step > first_step_ + 1) seconds_per_step_ = span / static_cast<double>(report.step - first_step_ - 1);
  if (quiet_ || !is_due(report.step == report.steps)) return;
  const double rate = span > 0 ? static_cast<double>(tokens_ - first_tokens_) / span : 0;
  draw({{formatted("step {}/{}", report.step, report.steps), 8},
        {epoch_text(report.sequences), 3},
        {formatted("loss {}", short_number(report.loss)), 6},
        {formatted("error {}", percent_text(report.token_error)), 5},
        {formatted("lr {}", short_number(report.lr)), 2},
        {formatted("grad {}", short_number(report.grad_norm)), 1},
        {formatted("{} tokens/s", with_commas(std::llround(rate))), 4},
        {left_text(report.step), 7}});
}

void ProgressPrinter::count_evaluated(std::int64_t done) {
  const Clock::time_point now = Clock::now();
  evaluation_.tokens += static_cast<double>(done - evaluation_.done) * evaluation_.length;
  evaluation_.seconds += std::chrono::duration<double>(now - evaluation_.since).count();
  evaluation_.done = done;
  evaluation_.since = now;
}

void ProgressPrinter::evaluating(std::int64_t step, const Split& split, std::int64_t done, std::int64_t count) {
  if (quiet_) return;
  if (done == 0) {
    evaluation_.done = 0;
    evaluation_.count = count;
    evaluation_.length = static_cast<double>(split.length);
    evaluation_.since = Clock::now();
    return;
  }
  count_evaluated(done);
  if (!is_due(false)) return;
  draw({{formatted("step {}/{}", step, steps_), 3},
        {formatted("evaluating {}", split.name), 2},
        {formatted("{}/{} sequences", with_commas(done), with_commas(count)), 1},
        {left_text(step), 4}});
}

void ProgressPrinter::evaluated(std::int64_t step, const Evaluation& evaluation) {
  count_evaluated(evaluation_.count);
  if (quiet_ && step != steps_) return;
  const std::string pad(split_width_ - std::min(split_width_, evaluation.split.size()), ' ');
  print(formatted("step {}  {}: {}{}", step, evaluation.split, pad, evaluation_text(evaluation, out_, step == steps_)));
}

void ProgressPrinter::finished(const RunFolder& folder, TrainOutcome outcome) {
  clear_line();
  if (quiet_) return;
  if (outcome == TrainOutcome::interrupted) {
    print(formatted("interrupted; 'tally resume {}' continues it", printable(folder.path())));
    return;
  }
  const double span = seconds_ - first_seconds_;
  const double rate = span > 0 ? static_cast<double>(tokens_ - first_tokens_) / span : 0;
  const double all = std::chrono::duration<double>(Clock::now() - started_).count();
  const std::string path = printable(folder.path());
  const std::string training =
      rate > 0 ? formatted(", training {} at {} tokens/s", duration_text(seconds_), with_commas(std::llround(rate)))
               : "";
  print(formatted("done in {}{}; peak memory {} MiB: tensors, the program and its libraries", duration_text(all),
                  training, with_commas(peak_rss_mib())));
  print(formatted("metrics, checkpoints and curves.svg are in {}", path));
  print(formatted("next: 'tally inspect {} --out page.html' shows its attention, 'tally report {}' its errors", path,
                  path));
}

}  // namespace tally
