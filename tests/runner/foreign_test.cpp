// The program with foreign or damaged files: refused with exit code 1 and a message that names the file and the
// problem, with little time and memory. Pipes and folders never block it. tests/core/io_* tests the readers themselves.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::foreign_test {

class ForeignFiles : public Program {
 protected:
  // Describes the file with at most 64 MiB of data, and expects a refusal within 100 ms of CPU time.
  void refused_at_once(const std::string& path, const std::string& message) {
#ifdef TALLY_SANITIZED  // sanitizers need more data of their own
    const Finished result = tally("describe " + path);
#else
    const Finished result = shell("ulimit -d 65536; exec '" TALLY_RUNNER "' describe " + path);
    constexpr double bytes_per_second = 50e6;  // allowed in addition for headers of megabytes
    std::error_code error;                     // ignored for a pipe or a folder
    const std::uintmax_t size = std::filesystem::file_size(folder_ / path, error);
    EXPECT_LT(result.cpu_seconds, 0.1 + (error ? 0 : static_cast<double>(size) / bytes_per_second)) << message;
#endif
    EXPECT_EQ(result.code, 1) << message;
    EXPECT_TRUE(holds(result.err, path) && holds(result.err, message)) << message << "\n" << result.err.substr(0, 500);
    EXPECT_LT(result.err.size(), 1000U);
  }
};

// tests/core/io_safetensors_refusals_test.cpp has many more; these take time or memory if they are not refused at once.
TEST_F(ForeignFiles, SafetensorsThatAreNone) {
  const auto with_header = [](std::uint64_t size, const std::string& header) {
    std::string text;
    for (int n = 0; n < 8; ++n) text += static_cast<char>(size >> (8 * n) & 255);
    return text + header + std::string(8, '\0');
  };
  std::string many = "{\"__metadata__\":{}", more = many;
  for (int n = 0; n < 1'000'000; ++n) many += formatted(",\"{}\":{{}}", n);
  for (int n = 0; n < 200'000; ++n)
    more += formatted(",\"{}\":{}", n, R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  const auto refused_header = [&](const std::string& header, const std::string& message, std::uint64_t size = 0) {
    write_file(folder_ / "f.safetensors", with_header(size == 0 ? header.size() : size, header));
    refused_at_once("f.safetensors", message);
  };
  refused_header("{}", "header length 18446744073709551615", ~std::uint64_t{0});
  refused_header("{}", "header length 1000", 1000);
  refused_header(std::string(100'000, '['), "expected an object");
  refused_header("{\"__metadata__\":" + std::string(100'000, '['), "nested deeper than 4");
  refused_header(many + "}", "'0': [json] 'dtype' is missing");
  refused_header(more + "}", "more than 100000 tensors");
  refused_header(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]}})", "2^31");
  write_file(folder_ / "cut.npy", "\x93NUMPY");
  refused_at_once("cut.npy", "ends within its header");
}

class ForeignFilesOfARun : public ForeignFiles {
 protected:
  void SetUp() override { done(tiny("run", "cope")); }
  std::string checkpoint_ = folder_ / "run/checkpoints/step-00000004.safetensors";
};

// Instead of a file there is a folder, a pipe without a writer, or damaged data.
TEST_F(ForeignFilesOfARun, FilesThatAreSomethingElse) {
  const std::vector<std::string> lines{"resume run --steps=6", "eval run --checkpoint=best", "report run",
                                       "train new --config run/config.json"};
  const std::vector<std::pair<std::string, std::vector<std::size_t>>> read_by{
      {"config.json", {0, 1, 2, 3}}, {"metrics.jsonl", {0, 2}}, {"results.json", {1, 2}}};
  for (const auto& [name, readers] : read_by) {
    const std::string path = folder_ / "run/" + name, bytes = read_file(path);
    const std::vector<std::function<void()>> replacements{
        [&] { std::filesystem::create_directory(path); },
        [&] { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); },
        [&] { write_file(path, bytes.substr(0, bytes.size() / 3) + "\xff\n" + bytes); },
        [&] { write_file(path, std::string(100'000, '[') + "\n"); },
    };
    for (std::size_t n = 0; n < replacements.size(); ++n) {
      std::filesystem::remove_all(path);
      replacements[n]();
      for (const std::size_t reader : readers) {
        const Finished result = tally(lines[reader]);
        EXPECT_EQ(result.code, reader == 3 ? 2 : 1) << name << n << lines[reader];
        EXPECT_TRUE(holds(result.err + result.out, name) || holds(result.err + result.out, "run"))
            << name << n << lines[reader] << result.err;
      }
    }
    std::filesystem::remove_all(path);
    write_file(path, bytes);
  }
  EXPECT_FALSE(exists("new"));
}

TEST_F(ForeignFilesOfARun, CheckpointsThatAreNoFilesArePassedOver) {
  std::filesystem::remove(checkpoint_);
  ASSERT_EQ(mkfifo(checkpoint_.c_str(), 0600), 0);
  const Finished piped = tally("eval run");
  EXPECT_EQ(piped.code, 0);
  EXPECT_TRUE(holds(piped.err, "step-00000004.safetensors") && holds(piped.out, "step 2")) << piped.err << piped.out;
  refused_at_once("run/checkpoints/step-00000004.safetensors", "is a pipe");
  refused_at_once("./run", "is a folder");
}

}  // namespace tally::testing::foreign_test
