// The files of a run in comparable form: checkpoints byte for byte, metrics without times.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/safetensors.hpp"
#include "tests/runner/program.hpp"

namespace tally::testing {

inline std::map<std::string, std::string> checkpoints_of(const std::string& run) {
  std::map<std::string, std::string> files;
  std::error_code none_yet;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints", none_yet)) {
    files[entry.path().filename().string()] = read_file(entry.path().string());
  }
  return files;
}

inline std::vector<std::string> names_of_checkpoints(const std::string& run) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : checkpoints_of(run)) names.push_back(name);
  return names;
}

// The newest complete checkpoint, also during training; "" if there is none.
inline std::string newest_checkpoint(const std::string& run) {
  std::string newest;
  std::error_code none_yet;
  for (auto entry = std::filesystem::directory_iterator(run + "/checkpoints", none_yet);
       entry != std::filesystem::directory_iterator(); entry.increment(none_yet)) {
    if (entry->path().extension() == ".safetensors") newest = std::max(newest, entry->path().filename().string());
  }
  return newest;
}

// All metrics lines except machine records, without times.
inline std::vector<std::string> metrics_of(const std::string& run) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    JsonValue value = parse_json(line, {}, "metrics");
    value.remove("seconds");
    if (!value.contains("start")) lines.push_back(write_json(value));
  }
  return lines;
}

// results.json without measured time and memory.
inline std::string results_of(const std::string& run) {
  JsonValue results = parse_json(read_file(run + "/results.json"), {}, "results");
  for (const char* measured : {"seconds", "evaluation_seconds", "peak_tensor_bytes"}) results.remove(measured);
  return write_json(results, 2);
}

inline std::size_t lines_of(const std::string& path) {
  const std::string text = read_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

inline void expect_same_run(const std::string& run, const std::string& reference) {
  EXPECT_EQ(names_of_checkpoints(run), names_of_checkpoints(reference));
  EXPECT_TRUE(checkpoints_of(run) == checkpoints_of(reference)) << "the bytes of the checkpoints differ";
  EXPECT_EQ(metrics_of(run), metrics_of(reference));
}

// Changes a bit of the file's last byte: in a checkpoint, of a number.
inline void damage(const std::string& path) {
  std::string bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(path, bytes);
}

// Replaces a checkpoint by one with changed tensors and valid checksums.
inline void change_tensors(const std::string& checkpoint, const std::function<void(NamedTensors&)>& change) {
  NamedTensors tensors;
  Metadata metadata;
  {
    const SafetensorsFile file = SafetensorsFile::open(checkpoint);
    metadata = file.metadata();
    for (const auto& entry : file.entries()) tensors.emplace_back(entry.name, file.read(entry.name));
  }
  change(tensors);
  std::erase_if(metadata, [](const auto& entry) { return entry.first.starts_with("checksum"); });
  add_checksums(metadata, tensors);
  write_safetensors(checkpoint, tensors, metadata);
}

// The JSON that a page's script reads.
inline JsonValue page_data(const std::string& page) {
  constexpr std::string_view open = R"(<script type="application/json" id="data">)";
  const std::size_t begin = page.find(open) + open.size(), end = page.find("</script>", begin);
  return parse_json(page.substr(begin, end - begin), {}, "page");
}

// Waits until f() is true, at most 20 seconds.
template <class F>
bool comes_true(F&& f) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!f()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// Sends a signal to a started program. Never to process groups, which numbers below 1 denote.
inline void send_signal(pid_t process, int signal) {
  if (process > 0) kill(process, signal);
}

}  // namespace tally::testing
