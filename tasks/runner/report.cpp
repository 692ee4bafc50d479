// tally report: what runs say together.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "core/io/atomic_file.hpp"
#include "tasks/printable.hpp"
#include "tasks/report.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/output_file.hpp"

namespace tally {
namespace {

struct ReportSettings {
  std::vector<std::string> folders;
  std::string out, error = "task";
};

ErrorKind error_kind(const std::string& text) {
  return text == "token" ? ErrorKind::token : text == "sequence" ? ErrorKind::sequence : ErrorKind::by_task;
}

int run_report(const ReportSettings& settings, const CommonOptions& common) {
  if (!settings.out.empty()) {
    known_ending(settings.out, {".svg"});
    check_output(settings.out);
  }
  const Report report = make_report(settings.folders);
  const ErrorKind kind = error_kind(settings.error);
  if (!settings.out.empty()) write_file_atomically(settings.out, svg_text(report_chart(report, kind)));
  if (common.json) {
    JsonValue json = report_json(report);
    if (!settings.out.empty()) json.set("curves", settings.out);
    std::cout << write_json(json) << "\n";
  } else {
    std::cout << report_text(report, kind);
    if (!settings.out.empty() && !common.quiet) std::cout << "\ncurves: " << printable(settings.out) << "\n";
  }
  return report.problems.empty() ? exit_code::done : exit_code::failed;
}

}  // namespace

std::function<int()> declare_report(CLI::App& app, CommonOptions& common, const std::vector<std::string>&) {
  auto settings = std::make_shared<ReportSettings>();
  app.add_option("DIR", settings->folders, "runs, or folders with runs in them")->required();
  app.add_option("--out", settings->out, "file for the learning curves, .svg")->group("What");
  app.add_option("--error", settings->error,
                 "what is wrong: token, sequence, or the one by which the task is usually judged (task)")
      ->check(CLI::IsMember({"task", "token", "sequence"}))
      ->capture_default_str()
      ->group("What");
  return [settings, &common] { return run_report(*settings, common); };
}

}  // namespace tally
