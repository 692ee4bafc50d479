#include "tasks/command_line/progress.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

constexpr double redraw_seconds = 0.1, plain_line_seconds = 10;

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

std::string text_evaluation_text(const Evaluation& e) {
  const TextCounts& text = *e.text;
  const std::optional<double> error = e.loss_error();
  return concat("loss ", short_number(e.loss), error ? concat(" +- ", short_number(*error, 2)) : "", ", perplexity ",
                exponential_text(e.loss), " of ", with_commas(text.tokens), " tokens",
                text.bytes > 0
                    ? concat("; ", short_number(e.bits_per_byte()), " bits per byte of ", with_commas(text.bytes))
                    : "",
                text.words > 0
                    ? concat("; word perplexity ", exponential_text(e.nats_per_word()), " of ", with_commas(text.words))
                    : "",
                "; context ", text.context, ", stride ", text.stride, "; tokens ", text.token_checksum, ", tokenizer ",
                text.tokenizer_checksum.empty() ? "unknown" : text.tokenizer_checksum, "; ",
                percent_text(e.token_error()), " wrong");
}

}  // namespace

std::string evaluation_text(const Evaluation& e) {
  if (e.text) return text_evaluation_text(e);
  return concat(percent_text(e.token_error()), " wrong (", rate_text(e.wrong, e.scored, "tokens"), "); ",
                rate_text(e.wrong_sequences, e.sequences, "sequences"),
                e.generated ? "; generated" : concat("; loss ", short_number(e.loss)));
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

void ProgressPrinter::started(const RunConfig& config, const SequenceModel& model, std::int64_t from_step) {
  first_step_ = from_step;
  steps_ = config.run.steps;
  last_drawn_ = Clock::now();
  if (quiet_) return;
  const auto task = config.make_task();
  const std::int64_t tokens = config.run.batch * task->splits().front().length;
  sequences_of_epoch_ = task->epoch();
  print(concat(config.task->name, " with ", config.label(), ": ", with_commas(model.parameter_count()), " parameters, ",
               with_commas(tokens), " tokens a step, device ", model.device(), ", BLAS ", blas_info().core, ", ",
               thread_count(), thread_count() == 1 ? " thread" : " threads"));
  if (from_step > 0) print(concat("going on from step ", from_step, " of ", steps_));
}

// "  epoch 1.25": how often the training's text or set has been seen.
std::string ProgressPrinter::epoch_text(std::int64_t sequences) const {
  if (sequences_of_epoch_ <= 0) return "";
  char text[48];
  std::snprintf(text, sizeof text, "  epoch %.2f",
                static_cast<double>(sequences) / static_cast<double>(sequences_of_epoch_));
  return text;
}

void ProgressPrinter::stepped(const StepReport& report) {
  if (first_tokens_ < 0) first_tokens_ = report.tokens, first_seconds_ = report.seconds;
  tokens_ = report.tokens;
  seconds_ = report.seconds;
  if (quiet_) return;
  const double since = std::chrono::duration<double>(Clock::now() - last_drawn_).count();
  if (since < (terminal_ ? redraw_seconds : plain_line_seconds) && report.step != report.steps) return;
  last_drawn_ = Clock::now();
  const double span = seconds_ - first_seconds_;
  const double rate = span > 0 ? static_cast<double>(tokens_ - first_tokens_) / span : 0;
  const double per_step = report.step > first_step_ + 1 ? span / static_cast<double>(report.step - first_step_ - 1) : 0;
  const std::string line =
      concat("step ", report.step, "/", report.steps, epoch_text(report.sequences), "  loss ",
             short_number(report.loss), "  error ", percent_text(report.token_error), "  lr ", short_number(report.lr),
             "  grad ", short_number(report.grad_norm), "  ", with_commas(std::llround(rate)), " tokens/s  ",
             duration_text(per_step * static_cast<double>(report.steps - report.step)), " left");
  if (terminal_) {
    std::fprintf(out_, "\r\033[K\033[?7l%s\033[?7h", line.c_str());  // cut where the terminal ends, not wrapped
    std::fflush(out_);
    line_drawn_ = true;
  } else {
    print(line);
  }
}

void ProgressPrinter::evaluated(std::int64_t step, const Evaluation& evaluation) {
  if (quiet_ && step != steps_) return;
  print(concat("step ", step, "  ", evaluation.split, ": ", evaluation_text(evaluation)));
}

void ProgressPrinter::finished(const RunFolder& folder, TrainOutcome outcome) {
  clear_line();
  if (quiet_) return;
  if (outcome == TrainOutcome::interrupted) {
    print(concat("interrupted; 'tally resume ", printable(folder.path()), "' goes on from here"));
    return;
  }
  const double span = seconds_ - first_seconds_;
  const double rate = span > 0 ? static_cast<double>(tokens_ - first_tokens_) / span : 0;
  print(concat("done in ", duration_text(seconds_), ", ", with_commas(std::llround(rate)), " tokens/s, peak memory ",
               with_commas(peak_rss_mib()), " MiB; metrics, checkpoints and results.json in ",
               printable(folder.path())));
}

}  // namespace tally
