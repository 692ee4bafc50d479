// The same run on the CPU and on the CUDA kernels (executed by the CPU, and by a GPU if one is available). Compares
// loss curves and initial weights, and moves a run between devices. Encodings are not listed here: new ones are checked
// automatically.
#include <gtest/gtest.h>

#include "tests/nn/encoding_cases.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::device_test {

class Devices : public Program {
 protected:
  // Trains a tiny model with dropout and returns its folder.
  std::string train(const std::string& name, const std::string& encoding, const std::string& device,
                    const std::string& options) {
    done(tiny(name, encoding, formatted("{} --device={} --model.dropout=0.1", options, device)));
    return folder_ / name;
  }

  // The loss, and the gradient norm if recorded, of each line in the run's metrics.
  static std::vector<double> curve_of(const std::string& run) {
    std::vector<double> numbers;
    for (const std::string& line : metrics_of(run)) {
      const JsonValue value = parse_json(line, {}, "metrics");
      for (const char* key : {"loss", "grad_norm"}) {
        if (const JsonValue* number = value.find(key)) numbers.push_back(number->real());
      }
    }
    return numbers;
  }

  static std::vector<std::string> names_of_kernel_devices() {
    std::vector<std::string> names;
    for (const Device device : kernel_devices()) names.push_back(to_text(device));
    return names;
  }

  // max |a - b| / max |b|
  static double difference(const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0, scale = 0;
    for (std::size_t n = 0; n < std::min(a.size(), b.size()); ++n) {
      largest = std::max(largest, std::abs(a[n] - b[n]));
      scale = std::max(scale, std::abs(b[n]));
    }
    return largest / scale;
  }
};

// Four steps and two evaluations. In f64 the curves agree to rounding. In f32 the CUDA kernels are as near to the f64
// curve as the CPU's, within a factor of two, or within 64 roundings; only a share of the encodings is checked in f32.
TEST_F(Devices, LossCurvesAgreeForEveryEncoding) {
  // Rounding errors grow smoothly under plain gradient descent. Adam turns the sign of a gradient that is pure rounding
  // into a full step.
  const std::string descent = "--optimiser.name=sgd --optimiser.lr=0.1 --dtype=";
  std::set<std::string> in_f32;
  for (const EncodingCase& one : every(4, plain_cases())) in_f32.insert(one.label);
  for (const EncodingEntry* entry : encoding_registry()) {
    SCOPED_TRACE(entry->name);
    const auto curve = [&](const std::string& device, const std::string& dtype) {
      return curve_of(train(formatted("{}-{}-{}", entry->name, device, dtype), entry->name, device, descent + dtype));
    };
    const std::vector<double> exact = curve("cpu", "f64");
    ASSERT_EQ(exact.size(), 2U * 4 + 2 * 3);
    const bool in_single = in_f32.contains(entry->name);
    const std::vector<double> cpu = in_single ? curve("cpu", "f32") : exact;
    for (const std::string& device : names_of_kernel_devices()) {
      SCOPED_TRACE(device);
      EXPECT_LE(difference(curve(device, "f64"), exact), 1e-12);
      if (!in_single) continue;
      EXPECT_LE(difference(curve(device, "f32"), exact), std::max(2 * difference(cpu, exact), 64 * 0x1p-24));
    }
  }
}

TEST_F(Devices, ARunMovesBetweenThem) {
  const std::string options = "--dtype=f64 --steps=8 --save-every=4", stayed = train("stayed", "cope", "cpu", options);
  for (const std::string& device : names_of_kernel_devices()) {
    for (const auto& [first, second] : {std::pair<std::string, std::string>{"cpu", device}, {device, "cpu"}}) {
      SCOPED_TRACE(first);
      const std::string run = train("from-" + first + device, "cope", first, options);
      for (const std::string& name : names_of_checkpoints(run)) {
        if (name > "step-00000004.safetensors") std::filesystem::remove(run + "/checkpoints/" + name);
      }
      std::filesystem::remove(run + "/results.json");
      done("resume " + run + " --quiet --threads=1 --device=" + second);
      EXPECT_EQ(names_of_checkpoints(run), names_of_checkpoints(stayed));
      EXPECT_LE(difference(curve_of(run), curve_of(stayed)), 1e-12);
    }
  }
}

}  // namespace tally::testing::device_test
