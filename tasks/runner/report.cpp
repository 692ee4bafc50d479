// tally report: what runs say together.
#include <memory>

#include "core/io/atomic_file.hpp"
#include "tasks/printable.hpp"
#include "tasks/report.hpp"
#include "tasks/report_page.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/error_option.hpp"
#include "tasks/runner/output_file.hpp"

namespace tally {
namespace {

struct ReportSettings {
  std::vector<std::string> folders;
  std::string out, error = "task";
};

Result run_report(const ReportSettings& settings, const CommonOptions& common) {
  if (!settings.out.empty()) {
    known_ending(settings.out, {".svg", ".html"});
    check_output(settings.out);
  }
  const Report report = make_report(settings.folders);
  const ErrorKind kind = error_kind(settings.error);
  JsonValue json = report_json(report);
  if (!settings.out.empty()) {
    const bool page = settings.out.ends_with(".html");
    const std::size_t name = settings.out.rfind('/') + 1;  // npos + 1 is 0
    write_file_atomically(settings.out,
                          page ? report_page(report, settings.out.substr(0, name)) : report_picture(report, kind));
    json.set(page ? "page" : "curves", settings.out);
    say(common, concat(page ? "page: " : "curves: ", printable(settings.out)));
  }
  return {report.problems.empty() ? exit_code::done : exit_code::failed, std::move(json), report_text(report, kind)};
}

}  // namespace

std::function<Result()> declare_report(CommandLine& line) {
  const auto settings = std::make_shared<ReportSettings>();
  line.add("DIR", &settings->folders, "runs, or folders with runs in them", {.required = true});
  line.add("--out", &settings->out, "file to write: a picture, .svg, or a page to look at, .html");
  add_error_option(line, &settings->error);
  return [settings, &common = line.common] { return run_report(*settings, common); };
}

}  // namespace tally
