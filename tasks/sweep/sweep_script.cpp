#include "tasks/sweep/sweep_script.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace tally {
namespace {

// The word quoted for the shell.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

// The command of a worker, without the name of its run.
std::string worker(const SweepScript& script) {
  std::string command = formatted("{} sweep {} --worker --jobs=1", quoted(script.program), quoted(script.folder));
  for (const std::string& word : script.words) command += " " + quoted(word);
  return command + " --only";
}

}  // namespace

std::string slurm_script(const SweepScript& script) {
  for (const std::string& name : script.runs) {
    check(name.find('\n') == std::string::npos, "sweep", "the name of a run has a line end");
  }
  const auto elements = std::min<std::int64_t>(script.jobs, static_cast<std::int64_t>(script.runs.size()));
  std::string text = formatted(
      "#!/usr/bin/env bash\n# {} runs of a sweep of tally; a second start trains the rest.\n# sbatch THIS_FILE: an "
      "array of {} workers. Options of sbatch override: --time, --partition, ...\n",
      script.runs.size(), elements);
  // Quotes would be part of the name in a line of options; %a is the element.
  for (const char c : script.folder) {
    check(static_cast<unsigned char>(c) > ' ' && c != '%' && c != '\\', "sweep",
          "'{}' has a character that sbatch does not take in the name of a log", script.folder);
  }
  text += "#SBATCH --job-name=tally\n";
  text += formatted("#SBATCH --array=0-{}\n", elements - 1);
  text += formatted("#SBATCH --cpus-per-task={}\n", script.threads);
  text += formatted("#SBATCH --mem={}M\n", script.memory_mib);
  text += formatted("#SBATCH --output={}/slurm-%a.log\n", script.folder);
  text += R"(#SBATCH --open-mode=append
# Before the time limit, and where the machine is taken away or lost, the element goes back into the queue.
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

)";
  text += formatted("elements={}\nruns=(\n", elements);
  for (const std::string& run : script.runs) text += formatted("  {}\n", quoted(run));
  text += formatted("{}{}{}", R"()

worker=
requeue=no
stop() { # the worker ends its step, saves and ends
  if [ -n "$worker" ]; then kill -TERM "$worker" 2>/dev/null; fi
}
trap 'requeue=yes; stop' USR1 # the time is about to be up
trap 'requeue=ended; stop' TERM # someone wants it to end

status=0
for ((i = SLURM_ARRAY_TASK_ID; i < ${#runs[@]}; i += elements)); do
  if [ $requeue != no ]; then break; fi
  )",
                    worker(script), R"( "${runs[i]}" &
  worker=$!
  while true; do # a signal ends a wait, and not the worker
    wait "$worker"
    code=$?
    if ! kill -0 "$worker" 2>/dev/null; then break; fi
  done
  worker=
  if [ $code -gt 128 ] && [ $requeue = no ]; then # killed: by whom, it cannot say
    if [ "${SLURM_RESTART_COUNT:-0}" -ge 5 ]; then exit $code; fi
    requeue=yes
  fi
  if [ $code -ne 0 ] && [ $requeue = no ]; then status=$code; fi
done
if [ $requeue = yes ]; then
  echo "goes back into the queue"
  scontrol requeue "$SLURM_JOB_ID"
  sleep 60 # it is ended here
fi
if [ $requeue = ended ]; then exit 143; fi
exit $status
)");
  return text;
}

}  // namespace tally
