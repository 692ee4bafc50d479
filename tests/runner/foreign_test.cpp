// The program with foreign or damaged files: refused with exit code 1 and a message that names the file and the
// problem, with little time and memory. Pipes and folders never block it. tests/core/io_* tests the readers themselves.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace foreign_test {

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int n = 0; n < bytes; ++n) text += static_cast<char>(value >> (8 * n) & 255);
  return text;
}

// A file with this safetensors header, whatever the header contains.
std::string with_header(const std::string& header, std::size_t data_bytes = 8) {
  return little_endian(header.size(), 8) + header + std::string(data_bytes, '\0');
}

std::string with_entry(const std::string& entry) { return with_header("{\"x\":{" + entry + "}}"); }

std::string npy(const std::string& dictionary, const std::string& data) {
  return "\x93NUMPY" + std::string("\1\0", 2) + little_endian(dictionary.size(), 2) + dictionary + data;
}

void expect_refused(const Finished& result, const std::string& path, const std::string& message) {
  EXPECT_EQ(result.code, 1) << message;
  EXPECT_TRUE(holds(result.err, path) && holds(result.err, message)) << message << "\n" << result.err.substr(0, 500);
  EXPECT_LT(result.err.size(), 1000U);
}

// Runs a command on the file with at most 64 MiB of data, and expects a refusal within 100 ms of CPU time.
void expect_refused_at_once(const std::string& path, const std::string& message, const TemporaryFolder& folder) {
#ifdef TALLY_SANITIZED  // sanitizers need more data of their own
  expect_refused(run_tally({"describe", path}, folder), path, message);
#else
  const std::string limited = "ulimit -d 65536; exec '" TALLY_RUNNER "' describe '" + path + "'";
  const Finished result = run_program({"/bin/sh", "-c", limited}, folder);
  expect_refused(result, path, message);
  constexpr double bytes_per_second = 50e6;  // allowed in addition for headers of megabytes
  std::error_code error;                     // ignored for a pipe or a folder
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  EXPECT_LT(result.cpu_seconds, 0.1 + (error ? 0 : static_cast<double>(size) / bytes_per_second)) << message;
#endif
}

TEST(ForeignFiles, SafetensorsThatAreNone) {
  const TemporaryFolder folder;
  const std::string path = folder / "f.safetensors", entry = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  std::string many = "{\"__metadata__\":{}", more = many;
  for (int n = 0; n < 1'000'000; ++n) many += formatted(",\"{}\":{{}}", n);
  for (int n = 0; n < 200'000; ++n)
    more += formatted(",\"{}\":{}", n, R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  const std::vector<std::pair<std::string, std::string>> files{
      {little_endian(0, 8) + "{}", "header length 0"},
      {little_endian(1000, 8) + "{}", "header length 1000"},
      {little_endian(~std::uint64_t{0}, 8) + "{}", "header length 18446744073709551615"},
      {little_endian(~std::uint64_t{7}, 8) + "{}", "header length 18446744073709551608"},
      {"{}", "f.safetensors"},
      {with_header("{\"\xff\":{}}"), "UTF-8"},
      {with_header("\xef\xbb\xbf{}"), "byte order mark"},
      {with_header(std::string(100'000, '[')), "expected an object"},
      {with_header("{\"__metadata__\":" + std::string(100'000, '[')), "nested deeper than 4"},
      {with_header(many + "}"), "'0': [json] 'dtype' is missing"},
      {with_header(more + "}"), "more than 100000 tensors"},
      {with_header(R"({"\ud800":{}})"), "surrogate"},
      {with_header("{\"x\":{" + entry + "},\"x\":{" + entry + "}}"), "x"},
      {with_entry(R"("dtype":"F32","shape":[1e3],"data_offsets":[0,8])"), "1e3"},
      {with_entry(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8])"), "does not fit 64 bits"},
      {with_entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "data_offsets"},
      {with_entry(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "data_offsets"},
      {with_entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"), "data_offsets"},
      {with_header("{\"x\":{" + entry + "},\"y\":{" + entry + "}}"), "y"},
      {with_entry(R"("dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8])"), "2^31"},
      {with_entry(R"("dtype":"F32","shape":[0,2147483648,2147483648,2147483648],"data_offsets":[0,0])"), "63 bits"},
      {with_entry(R"("dtype":"F32","shape":[2147483649],"data_offsets":[0,8])"), "2^31"},
      {with_header("{\"x\":{" + entry + "}}", 9), "belong to no tensor"},
      {with_entry(R"("dtype":"F99","shape":[2],"data_offsets":[0,8])"), "F99"},
      {with_entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"), "x"},
  };
  for (const auto& [bytes, message] : files) {
    write_file(path, bytes);
    expect_refused_at_once(path, message, folder);
  }
}

class ForeignFilesOfARun : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run_tally(tiny_training(run_, "cope"), folder_).code, 0); }

  // Changes the tensors of the newest checkpoint and keeps its checksums valid.
  void change_checkpoint(const std::function<void(NamedTensors&)>& change) {
    const SafetensorsFile file = SafetensorsFile::open(checkpoint_);
    NamedTensors tensors;
    for (const SafetensorsEntry& entry : file.entries()) tensors.emplace_back(entry.name, file.read(entry.name));
    change(tensors);
    Metadata metadata{
        {"format", "tally checkpoint"}, {"sequences", "16"}, {"step", "4"}, {"tokens", "256"}, {"version", "0"}};
    add_checksums(metadata, tensors);
    write_safetensors(checkpoint_, tensors, metadata);
  }

  Finished dump(const std::string& tokens) {
    return run_tally({"inspect", run_, "--tokens", tokens, "--out", folder_ / "out.safetensors"}, folder_);
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run", checkpoint_ = run_ + "/checkpoints/step-00000004.safetensors";
};

TEST_F(ForeignFilesOfARun, TokensThatAreNoArray) {
  const std::string path = folder_ / "t.npy", tokens(24, '\0');
  const auto dictionary = [](const std::string& type, const std::string& order, const std::string& shape) {
    return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  };
  const std::string good = dictionary("<i4", "False", "(2, 3)");
  std::string with_nul = good;
  with_nul[3] = '\0';
  const std::vector<std::pair<std::string, std::string>> files{
      {"", "t.npy"},
      {npy(with_nul, tokens), "header"},
      {"\x93NUMPY" + std::string("\2\0", 2) + little_endian(0xFFFFFFF0, 4) + good + tokens, "header"},
      {npy(dictionary("|O", "False", "(2, 3)"), tokens), "Python objects"},
      {npy(dictionary(">i4", "False", "(2, 3)"), tokens), ">i4"},
      {npy(good, tokens.substr(1)), "byte"},
      {npy(good, tokens + "x"), "byte"},
      {npy(dictionary("<i4", "False", "(4294967296, 4294967296)"), tokens), "2^31"},
      {npy(dictionary("<i4", "False", "(2, -3)"), tokens), "size -3"},
  };
  for (const auto& [bytes, message] : files) {
    write_file(path, bytes);
    expect_refused(dump(path), path, message);
    if (!bytes.empty()) expect_refused_at_once(path, message, folder_);
  }
  // Column-major order is converted to rows, not misread.
  std::string columns;
  for (const std::uint64_t id : {0U, 4U, 3U, 1U, 2U, 3U}) columns += little_endian(id, 4);
  write_file(path, npy(dictionary("<i4", "True", "(2, 3)"), columns));
  ASSERT_EQ(dump(path).code, 0);
  EXPECT_EQ(SafetensorsFile::open(folder_ / "out.safetensors").read("tokens").to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{0, 3, 2, 4, 1, 3}));
}

TEST_F(ForeignFilesOfARun, CheckpointsOfAnotherModel) {
  const std::string name = "model.blocks.0.mlp.up.weight", bytes = read_file(checkpoint_);
  const auto tensor = [&name](NamedTensors& tensors) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
  };
  const std::vector<std::pair<std::string, std::function<void(NamedTensors&)>>> changes{
      {"blocks.0.mlp.up.weight is missing", [&](NamedTensors& tensors) { tensors.erase(tensor(tensors)); }},
      {"blocks.9.weight is unexpected",
       [](NamedTensors& tensors) { tensors.emplace_back("model.blocks.9.weight", Tensor::zeros({2})); }},
      {"blocks.0.mlp.up.weight is f32 [8, 32]",
       [&](NamedTensors& tensors) {
         tensor(tensors)->second = Tensor::zeros({8, 32});
       }},
      {"blocks.0.mlp.up.weight is f64 [32, 8]",
       [&](NamedTensors& tensors) {
         tensor(tensors)->second = Tensor::zeros({32, 8}, DType::f64);
       }},
      {"; 5 more",
       [](NamedTensors& tensors) {
         for (int n = 0; n < 15; ++n) tensors.emplace_back(formatted("model.x{}", n), Tensor::zeros({2}));
       }},
      // A name with terminal commands is printed escaped.
      {"\\x1b[2J", [](NamedTensors& tensors) { tensors.emplace_back("model.\x1b[2J", Tensor::zeros({2})); }},
  };
  for (const auto& [message, change] : changes) {
    write_file(checkpoint_, bytes);
    change_checkpoint(change);
    for (const char* command : {"eval", "resume"}) {
      std::vector<std::string> words{command, run_};
      if (words[0] == "resume") words.emplace_back("--steps=6");
      const Finished result = run_tally(words, folder_);
      EXPECT_EQ(result.code, 1) << command << message;
      EXPECT_TRUE(holds(result.err, message)) << command << " " << message << "\n" << result.err;
      EXPECT_FALSE(holds(result.err, "\x1b"));
    }
  }
}

// Instead of a file there is a folder, a pipe without a writer, or damaged data.
TEST_F(ForeignFilesOfARun, FilesThatAreSomethingElse) {
  const std::vector<std::vector<std::string>> commands{{"resume", run_, "--steps=6"},
                                                       {"eval", run_, "--checkpoint=best"},
                                                       {"report", run_},
                                                       {"train", folder_ / "new", "--config", run_ + "/config.json"}};
  const std::vector<std::pair<std::string, std::vector<std::size_t>>> read_by{
      {"config.json", {0, 1, 2, 3}}, {"metrics.jsonl", {0, 2}}, {"results.json", {1, 2}}};
  for (const auto& [name, readers] : read_by) {
    const std::string path = run_ + "/" + name, bytes = read_file(path);
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
        const Finished result = run_tally(commands[reader], folder_);
        EXPECT_EQ(result.code, commands[reader][0] == "train" ? 2 : 1) << name << n << commands[reader][0];
        EXPECT_TRUE(holds(result.err + result.out, name) || holds(result.err + result.out, run_))
            << name << n << commands[reader][0] << result.err;
      }
    }
    std::filesystem::remove_all(path);
    write_file(path, bytes);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

TEST_F(ForeignFilesOfARun, CheckpointsThatAreNoFilesArePassedOver) {
  std::filesystem::remove(checkpoint_);
  ASSERT_EQ(mkfifo(checkpoint_.c_str(), 0600), 0);
  const Finished piped = run_tally({"eval", run_}, folder_);
  EXPECT_EQ(piped.code, 0);
  EXPECT_TRUE(holds(piped.err, checkpoint_) && holds(piped.out, "step 2")) << piped.err << piped.out;
  expect_refused_at_once(checkpoint_, "is a pipe", folder_);
  expect_refused_at_once(run_, "is a folder", folder_);
}

}  // namespace foreign_test
}  // namespace tally::testing
