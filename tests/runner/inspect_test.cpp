// tally inspect: a page for every encoding whose numbers match the activations of the same sequences within the
// packing's precision; several runs next to each other; refused options. tests/browser checks the page in a browser,
// activations_test.cpp the files.
#include <gtest/gtest.h>

#include "nn/encoding/encoding.hpp"
#include "tests/runner/run_files.hpp"
#include "tests/tasks/unpack.hpp"

namespace tally::testing::inspect_test {

constexpr std::int64_t length = 16, heads = 2;

class Inspect : public Program {
 protected:
  void train(const std::string& name, const std::string& encoding) {
    done(tiny(name, encoding, "--optimiser.lr=0.02"));
  }
  // The data of the page that is made with these options.
  JsonValue page(const std::string& options) {
    done("inspect --out page.html " + options);
    return page_data(file("page.html"));
  }

  // One dump per sequence, as on the page. With batches of other sizes, rounding may swap two nearly equal keys, and
  // hard attention would choose the other one.
  std::string dump_of(std::size_t n) const { return folder_ / formatted("dump-{}.safetensors", n); }
  void dump_each(const std::string& run, const std::string& split, std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) {
      done(formatted("inspect {} --split {} --start {} --count 1 --out {}", run, split, n, dump_of(n)));
    }
  }

  // Compares the page's numbers of one run with the dumps of its sequences.
  void expect_as_dumped(const JsonValue& data, std::size_t run) {
    const auto of_head = [&](const SafetensorsFile& dump, const std::string& name, std::size_t head) {
      const Tensor all = dump.read(name);
      return all.detached_select(0, 0)
          .detached_select(0, static_cast<std::int64_t>(head))
          .to(DType::f64)
          .to_vector<double>();
    };
    const JsonValue::Array& sequences = data.elements("runs")[run].elements("sequences");
    for (std::size_t n = 0; n < sequences.size(); ++n) {
      const SafetensorsFile dump = SafetensorsFile::open(dump_of(n));
      const JsonValue::Array& layers = sequences[n].elements("layers");
      for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        EXPECT_TRUE(layers[layer].contains("weights"));
        for (const char* name : {"weights", "gates", "position_weights", "decay", "breaks"}) {
          const std::string dumped = formatted("blocks.{}.{}", layer, name);
          SCOPED_TRACE(dumped);
          if (!layers[layer].contains(name)) {
            if (dump.find(dumped) == nullptr) continue;
            EXPECT_EQ(std::string_view(name), "gates") << "only gates above 1 are left out";
            const std::vector<double> gates = dump.read(dumped).to(DType::f64).to_vector<double>();
            EXPECT_GT(*std::ranges::max_element(gates), 1);
            continue;
          }
          ASSERT_NE(dump.find(dumped), nullptr);
          const std::string packing = data.at("quantities").string(name);
          for (std::size_t head = 0; head < heads; ++head) {
            const std::vector<double> exact = of_head(dump, dumped, head);
            const JsonValue& packed = layers[layer].elements(name)[head];
            if (packed.is_null()) {
              // A head without this quantity, or one whose weights may all be 0 by its rule.
              EXPECT_EQ(exact, std::vector<double>(exact.size()));
              if (std::string_view(name) == "weights") ++compared_;
              continue;
            }
            ++compared_;
            const Unpacked shown = unpack(packed.string(), length, packing);
            const bool is_signed = packed.string().find(':') != std::string::npos;
            double largest = 0;
            for (const double x : exact) largest = std::max(largest, std::abs(x));
            for (std::size_t at = 0; at < exact.size(); ++at) {
              const double bound = is_signed            ? std::sqrt(largest * std::abs(exact[at])) / 127
                                   : packing == "gates" ? 1 / 255.0
                                                        : (packing == "breaks" ? 3 : 1) * std::sqrt(exact[at]) / 255;
              ASSERT_NEAR(shown.values[at], exact[at], bound + 4e-5) << at;
            }
            if (packing != "gates") continue;
            const std::vector<double> positions = of_head(dump, formatted("blocks.{}.positions", layer), head);
            for (std::size_t at = 0; at < exact.size(); ++at) {
              if (at % length > at / length) continue;
              ASSERT_NEAR(shown.sums[at], positions[at], 1 / 510.0 + 1e-5) << at;
            }
          }
        }
      }
    }
  }

  int compared_ = 0;
};

TEST_F(Inspect, EveryEncodingShowsWhatItsDumpHas) {
  std::vector<std::string> encodings{"cope+relative", "alibi+stick-breaking", "cope+hard", "cope@0,fox@1",
                                     "0:none,1:cope"};
  for (const EncodingEntry* entry : encoding_registry()) encodings.push_back(entry->name);
  for (const std::string& encoding : encodings) {
    SCOPED_TRACE(encoding);
    const std::string run = formatted("run-{}{}", compared_, encoding);
    train(run, encoding);
    const JsonValue shown = page(run + " --split ood-dense --count 2");
    dump_each(run, "ood-dense", 2);
    for (const std::int64_t token : shown.elements("sequences")[0].at("tokens").integers()) {
      EXPECT_TRUE(shown.at("symbols").contains(std::to_string(token))) << token;
    }
    EXPECT_EQ(shown.elements("sequences").size(), 2u);
    EXPECT_EQ(shown.elements("sequences")[1].string("name"), "ood-dense 1");
    EXPECT_EQ(shown.elements("runs")[0].string("pe"), encoding);
    const int before = compared_;
    expect_as_dumped(shown, 0);
    EXPECT_GE(compared_ - before, 8) << "two sequences, layers and heads";
  }
}

TEST_F(Inspect, RunsSideBySideReadTheSameSequences) {
  train("one", "cope");
  train("other", "stick-breaking");
  const JsonValue shown = page("one other --text w0i1r0i1w1i0r1r1");
  EXPECT_EQ(shown.elements("runs").size(), 2u);
  EXPECT_EQ(shown.elements("sequences")[0].at("tokens").integers().size(), 16u);
  EXPECT_EQ(shown.elements("runs")[1].elements("sequences")[0].at("answers").integers().size(), 16u);
  dump_each("other", "in-distribution", 1);
  expect_as_dumped(page("one other --count 1"), 1);
  EXPECT_GT(compared_, 0);
}

}  // namespace tally::testing::inspect_test
