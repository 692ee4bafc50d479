#include "tasks/runs/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/reader.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/files.hpp"

namespace tally {
namespace {

JsonValue to_json(const RunRecord& run) { return run.json; }

JsonValue to_json(const StartRecord& start) {
  return JsonValue::object({{"step", start.step}, {"start", start.machine.to_json()}});
}

JsonValue to_json(const StepReport& report) {
  return JsonValue::object({{"step", report.step},
                            {"split", "train"},
                            {"loss", report.loss},
                            {"token_error", report.token_error},
                            {"sequence_error", report.sequence_error},
                            {"lr", report.lr},
                            {"grad_norm", report.grad_norm},
                            {"tokens", report.tokens},
                            {"seconds", report.seconds}});
}

JsonValue to_json(const Measurement& measured) { return evaluation_json(measured.step, measured.evaluation); }

JsonValue to_json(const DivergenceRecord& end) {
  return JsonValue::object({{"step", end.step}, {"diverged", end.why}});
}

std::string line_of(const MetricsRecord& record) {
  return write_json(std::visit([](const auto& one) { return to_json(one); }, record)) + "\n";
}

MetricsRecord record_of(const JsonValue& line) {
  check(line.is_object(), "metrics", "must be an object, not {}", line.kind());
  if (!line.contains("step")) return RunRecord{line};
  const std::int64_t step = line.integer("step");
  if (line.contains("start")) return StartRecord{step, Machine::from_json(line.at("start"))};
  if (line.contains("diverged")) return DivergenceRecord{step, line.string("diverged")};
  if (line.string("split") != "train") return Measurement{step, evaluation_from_json(line)};
  return StepReport{.step = step,
                    .loss = real_or_nan(line, "loss"),
                    .token_error = real_or_nan(line, "token_error"),
                    .sequence_error = real_or_nan(line, "sequence_error"),
                    .lr = real_or_nan(line, "lr"),
                    .grad_norm = real_or_nan(line, "grad_norm"),
                    .tokens = line.integer("tokens"),
                    .seconds = real_or_nan(line, "seconds")};
}

}  // namespace

std::int64_t step_of(const MetricsRecord& record) {
  return std::visit(
      [](const auto& one) -> std::int64_t {
        if constexpr (requires { one.step; }) return one.step;
        return 0;
      },
      record);
}

std::vector<MetricsRecord> read_metrics(const std::string& path) {
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 32;
  std::vector<MetricsRecord> records;
  if (!path_exists(path) || std::filesystem::file_size(path) == 0) return records;
  const std::string text = read_text(path, most_bytes);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = formatted("{}, line {}", path, records.size() + 1);
    const JsonLimits limits{.max_depth = 16, .max_values = 1'000'000};  // errors by key can be many
    const JsonValue json = parse_json(std::string_view(text).substr(begin, end - begin), limits, line);
    records.push_back(in_file(line, [&] { return record_of(json); }));
  }
  return records;
}

void rewrite_metrics(const std::string& path, const std::vector<MetricsRecord>& records) {
  std::string text;
  for (const MetricsRecord& record : records) text += line_of(record);
  write_file_atomically(path, text);
}

MetricsWriter::MetricsWriter(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  check(file_.open(), "metrics", "cannot write {}: {}", path, std::strerror(errno));
}

void MetricsWriter::write(const MetricsRecord& record) {
  const std::string text = line_of(record);
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t n = ::write(file_.number(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, "metrics", "cannot write {}: {}", path_, std::strerror(errno));
    written += static_cast<std::size_t>(n);
  }
}

void MetricsWriter::sync() { ::fdatasync(file_.number()); }

}  // namespace tally
