// Helpers that run small kernels on cuda-host and check their results.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "cuda/emulator/settings.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::cuda_host {

inline constexpr Device device{DeviceType::cuda_host, 0};

// Settings for the time of one scope.
class WithSettings {
 public:
  explicit WithSettings(const Settings& settings) : before_(cuda_host::settings()) { set_settings(settings); }
  ~WithSettings() { set_settings(before_); }
  WithSettings(const WithSettings&) = delete;
  WithSettings& operator=(const WithSettings&) = delete;

 private:
  Settings before_;
};

// The schedules under which every kernel must give the same bits.
inline std::vector<Settings> schedules() {
  return {{.schedule = Schedule::forward},
          {.schedule = Schedule::reverse},
          {.schedule = Schedule::random, .seed = 1},
          {.schedule = Schedule::random, .seed = 2}};
}

// The message that stops the launch inside f; empty if none does.
inline std::string mistake_in(const std::function<void()>& f) {
  try {
    f();
  } catch (const InternalError& error) {
    return error.what();
  }
  return {};
}

inline cudaStream_t stream() { return use_device(0).stream; }

}  // namespace tally::cuda_host
