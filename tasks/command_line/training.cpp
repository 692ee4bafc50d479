#include "tasks/command_line/training.hpp"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/profile.hpp"
#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/json.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"
#include "tasks/print/terminal.hpp"
#include "tasks/results/report.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/runs/train.hpp"
#include "tasks/training/tree_sum.hpp"

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
      "{}\n    {}{}{} wrong\n    context {}, stride {}; tokens {}, tokenizer {}", begin,
      text.bytes > 0 ? formatted("{} bits per byte of {}; ", short_number(e.bits_per_byte()), with_commas(text.bytes))
                     : "",
      text.words > 0
          ? formatted("word perplexity {} of {}; ", exponential_text(e.nats_per_word()), with_commas(text.words))
          : "",
      percent_text(e.token_error()), text.context, text.stride, text.token_checksum,
      text.tokenizer_checksum.empty() ? "unknown" : text.tokenizer_checksum);
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
  print(formatted("{} with {}: {} parameters, {} tokens a step, device {}, BLAS {}, {}", config.task->name,
                  config.label(), with_commas(model.parameter_count()), with_commas(tokens), model.device(),
                  blas_info().core, plural(thread_count(), "thread")));
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

namespace {

// Prints progress. With a path, it also profiles the run: a table of times by operation, and a trace for
// chrome://tracing or ui.perfetto.dev.
class ProfilingPrinter final : public ProgressPrinter {
 public:
  ProfilingPrinter(const CommonOptions& common, std::string path)
      : ProgressPrinter(common.quiet, common.json), path_(std::move(path)) {
    if (!path_.empty()) start_profile();
  }

  void stepped(const StepReport& report) override {
    ProgressPrinter::stepped(report);
    if (path_.empty()) return;
    take(stop_profile());
    start_profile();
  }

  // Ends the profile.
  void write_profile() {
    if (path_.empty()) return;
    take(stop_profile());
    JsonValue events = JsonValue::array();
    for (const ProfileEvent& event : trace_) {
      events.push(JsonValue::object({{"name", event.name},
                                     {"ph", "X"},  // a complete event: begin and duration
                                     {"ts", event.start_us},
                                     {"dur", event.duration_us},
                                     {"pid", 1},
                                     {"tid", 1},
                                     {"args", JsonValue::object({{"bytes", event.bytes}})}}));
    }
    write_file_atomically(path_, write_json(JsonValue::object({{"traceEvents", std::move(events)}})) + "\n");
    std::vector<std::pair<std::string, Sum>> sorted(sums_.begin(), sums_.end());
    std::ranges::sort(sorted, std::greater(), [](const auto& row) { return row.second.microseconds; });
    TableRows rows{{"operation", "seconds", "share", "calls", "bytes"}};
    for (const auto& [name, sum] : sorted) {
      rows.push_back({name, short_number(sum.microseconds * 1e-6), percent_text(sum.microseconds / all_us_),
                      with_commas(sum.calls), bytes_text(static_cast<double>(sum.bytes))});
    }
    print(markdown_table(rows));
  }

 private:
  struct Sum {
    double microseconds = 0;
    std::int64_t calls = 0;
    std::uint64_t bytes = 0;
  };

  // Adds the events of a step. The table counts all events. The trace ends with the step in which it exceeds a limit,
  // so that viewers can open the trace of a long run.
  void take(std::vector<ProfileEvent> events) {
    constexpr std::size_t most_traced = 100'000;
    const bool traced = trace_.size() < most_traced;
    double end = 0;
    for (ProfileEvent& event : events) {
      Sum& sum = sums_[event.name];
      sum.microseconds += event.duration_us;
      ++sum.calls;
      sum.bytes += event.bytes;
      all_us_ += event.duration_us;
      end = std::max(end, event.start_us + event.duration_us);
      event.start_us += before_us_;
      if (traced) trace_.push_back(std::move(event));
    }
    before_us_ += end;
  }

  std::string path_;
  std::map<std::string, Sum> sums_;  // by operation
  std::vector<ProfileEvent> trace_;
  double before_us_ = 0, all_us_ = 0;  // the start of the current step; the time of all events
};

}  // namespace

MemoryEstimate check_can_train(const RunConfig& config, OptimizerState state) {
  const MemoryEstimate need = as_usage([&] {
    const std::unique_ptr<Task> task = config.make_task();
    (void)task->example(task->splits().front().name, 0);  // the training split may be empty
    MemoryEstimate estimate = estimate_training(config, *task, state);
    check_length(model_of(config, *task), config.longest(*task));  // now, not when the first such sequence is read
    if (const std::optional<RandomPositions> random = config.random_positions(*task)) {
      const OnlyCounting counting;
      random->check_read_by(*config.make_model(*task), config.label());
    }
    return estimate;
  });
  check_fits(need);
  return need;
}

void check_ranks(const RunConfig& config) {
  const ProcessGroup& ranks = ProcessGroup::world();
  if (ranks.alone()) return;
  const std::int64_t height = config.run.at_once() > 0 ? config.run.at_once() : config.run.batch;
  const std::int64_t parts = (config.run.batch + height - 1) / height;
  const std::int64_t busy = tree_share(parts, ranks.size(), 0).ranks;
  if (busy < ranks.size()) {
    throw UsageError(
        formatted("[mpi] {} processes share the micro-batches of a step, and {}{} enough for {}; --micro-batch {} of "
                  "--batch {} says how many there are",
                  ranks.size(), parts, parts == 1 ? " is" : " are", busy, height, config.run.batch));
  }
}

namespace {

// Also writes the curves of a run that was killed after its results were written.
void write_curves(const RunFolder& folder, bool was_finished) {
  const std::string path = folder.path() + "/curves.svg";
  if (was_finished && path_exists(path)) return;
  write_file_atomically(path, svg_text(report_chart(make_report({folder.path()}))));
}

}  // namespace

Result run_training(RunFolder folder, const CommonOptions& common, const std::string& profile, OptimizerState state) {
  const std::atomic<bool>& stop = watch_signals();
  ProfilingPrinter printer(common, profile);
  const bool was_finished = folder.finished();
  const TrainOutcome outcome = train(folder, printer, stop, state);
  if (outcome == TrainOutcome::done && folder.writes()) write_curves(folder, was_finished);
  if (!was_finished) printer.finished(folder, outcome);
  printer.write_profile();
  // With several ranks, another one may have received the signal.
  const int signal = signal_exit_code() == 0 ? exit_code::terminated : signal_exit_code();
  const int code = outcome == TrainOutcome::done ? exit_code::done : signal;
  // People have already read the evaluations during training.
  return common.json && folder.finished() ? Result{code, folder.read_results()} : Result{code};
}

}  // namespace tally
