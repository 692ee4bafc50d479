// tally report: compares the results of several runs.
#include <memory>

#include "core/io/atomic_file.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/results/report.hpp"

namespace tally {
namespace {

struct ReportSettings {
  std::vector<std::string> folders;
  std::string out;
  bool paired = false;
};

Result run_paired(const ReportSettings& settings) {
  if (settings.folders.size() != 2) {
    throw UsageError(formatted("[report] --paired compares two runs, not {}", settings.folders.size()));
  }
  const RunSummary first = read_run(settings.folders[0]), second = read_run(settings.folders[1]);
  const ResultTable table = paired(first, second);
  return {exit_code::done, JsonValue::object({{"a", first.path}, {"b", second.path}, {"paired", table.rows_json()}}),
          table.text()};
}

Result run_report(const ReportSettings& settings, const CommonOptions& common) {
  if (settings.paired) return run_paired(settings);
  if (!settings.out.empty()) {
    known_ending(settings.out, {".svg", ".html"});
    check_output(settings.out);
  }
  const Report report = make_report(settings.folders);
  JsonValue json = report_json(report);
  if (!settings.out.empty()) {
    const bool page = settings.out.ends_with(".html");
    const std::size_t name = settings.out.rfind('/') + 1;  // npos + 1 is 0
    write_file_atomically(settings.out,
                          page ? report_page(report, settings.out.substr(0, name)) : svg_text(report_chart(report)));
    json.set(page ? "page" : "curves", settings.out);
    say(common, formatted("{}{}", page ? "page: " : "curves: ", printable(settings.out)));
  }
  return {report.problems.empty() ? exit_code::done : exit_code::failed, std::move(json),
          text_of(overview_tables(report)) + report_text(report)};
}

}  // namespace

std::function<Result()> declare_report(CommandLine& line) {
  const auto settings = std::make_shared<ReportSettings>();
  line.add("DIR", &settings->folders, "runs, or folders with runs in them", {.required = true});
  line.add("--out", &settings->out, "file to write: learning curves, .svg, or a page to look at, .html");
  line.add("--paired", &settings->paired, "two language models: the difference of their losses on the same tokens",
           {.excludes = {"--out"}});
  return [settings, &common = line.common] { return run_report(*settings, common); };
}

}  // namespace tally
