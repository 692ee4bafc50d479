// tally inspect: activations in a file, the summary and the answer to a text; a page for every encoding whose numbers
// match the activations of the same sequences within the packing's precision; several runs next to each other; refused
// options. outside_test.cpp checks the numbers, tests/browser the page in a browser.
#include <gtest/gtest.h>

#include <cmath>

#include "core/io/npy.hpp"
#include "nn/encoding/encoding.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/run_files.hpp"
#include "tests/tasks/unpack.hpp"

namespace tally::testing::inspect_test {

class InspectRun : public Program {
 protected:
  // A trained run with checkpoints of steps 2 and 4.
  void train(const std::string& encoding, const std::string& options = "") {
    std::filesystem::remove_all(folder_ / "run");
    done(tiny("run", encoding, options));
  }
  SafetensorsFile saved(const std::string& options) {
    done("inspect run --threads=1 --out out.safetensors " + options);
    return SafetensorsFile::open(folder_ / "out.safetensors");
  }
};

using Activations = InspectRun;
using Summary = InspectRun;
using Answer = InspectRun;

TEST_F(Activations, HaveTheirNamesTypesAndShapes) {
  train("cope");
  const SafetensorsFile file = saved("--split ood-sparse --count 3 --gradients");
  std::map<std::string, std::pair<DType, Shape>> expected{
      {"tokens", {DType::i32, {3, 16}}},        {"targets", {DType::i32, {3, 16}}},
      {"loss_mask", {DType::boolean, {3, 16}}}, {"score_mask", {DType::boolean, {3, 16}}},
      {"logits", {DType::f32, {3, 16, 5}}},     {"loss", {DType::f32, {}}},
  };
  for (const std::string layer : {"0", "1"}) {
    for (const std::string what : {"weights", "gates", "positions", "position_weights"}) {
      expected[formatted("blocks.{}.{}", layer, what)] = {DType::f32, {3, 2, 16, 16}};
    }
  }
  const auto checkpoint = RunFolder::open(folder_ / "run").open_checkpoint(4);
  for (const StoredTensor& value : checkpoint.tensors("model.")) {
    expected["gradients.model." + value.name] = {value.dtype, value.shape};
  }
  EXPECT_EQ(file.entries().size(), expected.size());
  for (const auto& [name, what] : expected) {
    const SafetensorsEntry* entry = file.find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, what.first) << name;
    EXPECT_EQ(entry->shape, what.second) << name;
  }
  EXPECT_EQ(file.metadata().at("split"), "ood-sparse");
}

TEST_F(Activations, MasksAreThoseOfTheTask) {
  train("none", "--task.loss=all");
  const SafetensorsFile file = saved("--split ood-sparse --count 2");
  const std::unique_ptr<Task> task = RunFolder::open(folder_ / "run").config().make_task();
  std::vector<bool> loss, score;
  for (const Example& example : examples_of(*task, "ood-sparse", 0, 2)) {
    loss.insert(loss.end(), example.loss_mask.begin(), example.loss_mask.end());
    score.insert(score.end(), example.score_mask.begin(), example.score_mask.end());
  }
  ASSERT_NE(loss, score);
  EXPECT_EQ(file.read("loss_mask").to_vector<bool>(), loss);
  EXPECT_EQ(file.read("score_mask").to_vector<bool>(), score);
}

TEST_F(Activations, OfTheSequencesAndTheCheckpointThatAreChosen) {
  train("none");
  const auto values = [&](const char* options, const char* name) {
    return saved(options).read(name).to(DType::f32).to_vector<float>();
  };
  const auto step = [&] { return SafetensorsFile::open(folder_ / "out.safetensors").metadata().at("step"); };
  const auto three = values("--count 3", "tokens"), third = values("--count 1 --start 2", "tokens");
  EXPECT_EQ(third, std::vector<float>(three.begin() + 32, three.end()));
  const auto earlier = values("--checkpoint 2", "logits"), last = values("", "logits");
  EXPECT_NE(earlier, last);
  EXPECT_EQ(step(), "4");
  done("inspect run --out out.safetensors --checkpoint best");
  refused("inspect run --checkpoint 3", "keeps no checkpoint of step 3; it has 2, 4", 1);
  refused("inspect run --checkpoint 4x", "neither newest, best nor a step");
  // A damaged checkpoint is passed over.
  damage(folder_ / "run/checkpoints/step-00000004.safetensors");
  EXPECT_TRUE(holds(tally("inspect run --out out.safetensors").err, "passed over"));
  EXPECT_EQ(step(), "2");
}

TEST_F(Summary, CoversEveryHead) {
  train("cope");
  const JsonValue told = json("inspect run --count=4 --split=ood-dense");
  EXPECT_EQ(told.string("split"), "ood-dense");
  EXPECT_EQ(told.integer("sequences"), 4);
  const JsonValue &scored = told.at("tables").at("scored"), &all = told.at("tables").at("all");
  ASSERT_EQ(scored.elements().size(), 2u);        // gates and attention
  for (std::size_t head = 0; head < 4; ++head) {  // two layers of two heads
    const auto row = [&](const JsonValue& tables, std::size_t n) {
      return tables.elements()[n].elements("rows").at(head);
    };
    // Every query attends to the first token, a write, so the 4 x 16 queries have at least that many pairs.
    EXPECT_GE(row(all, 0).at("w").integer("n"), 64);
    EXPECT_EQ(row(all, 1).at("w").integer("n"), 64);
    const JsonValue attention = row(scored, 1);
    EXPECT_EQ(attention.at("source_attention").integer("n"), told.integer("scored"));
    double sum = 0;  // the attention of a query over all roles sums to 1
    for (const JsonMember& member : attention.members()) {
      if (member.value.is_object() && !member.name.starts_with("source")) sum += member.value.real("mean");
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST_F(Answer, AgreesWithTheActivations) {
  train("cope", "--optimiser.lr=0.02");
  const std::vector<std::int32_t> tokens{0, 3, 2, 4, 2, 4, 1};
  const std::string vocabulary = "wri01";
  const SafetensorsFile dump = saved("--text w0i1i1r");
  EXPECT_EQ(dump.read("tokens").to_vector<std::int32_t>(), tokens);
  const std::vector<float> logits = dump.read("logits").to_vector<float>();
  const std::vector<float> weights = dump.read("blocks.1.weights").to_vector<float>();
  const std::vector<float> positions = dump.read("blocks.1.positions").to_vector<float>();

  const JsonValue told = json("inspect run --threads=1 --text w0i1i1r --top 5");
  double sum = 0;
  for (std::size_t id = 0; id < 5; ++id) sum += std::exp(static_cast<double>(logits[6 * 5 + id]));
  ASSERT_EQ(told.elements("candidates").size(), 5u);
  double before = 1;
  for (const JsonValue& candidate : told.elements("candidates")) {
    const std::size_t id = vocabulary.find(candidate.string("symbol"));
    EXPECT_NEAR(candidate.real("probability"), std::exp(static_cast<double>(logits[6 * 5 + id])) / sum, 1e-6);
    EXPECT_LE(candidate.real("probability"), before);
    before = candidate.real("probability");
  }
  ASSERT_EQ(told.elements("attention").size(), 4u);  // two layers of two heads
  const JsonValue& last = told.elements("attention")[3];
  EXPECT_EQ(last.elements("keys").size(), 5u);
  before = 1;
  for (const JsonValue& key : last.elements("keys")) {
    const auto token = static_cast<std::size_t>(key.integer("place"));
    const std::size_t element = (1 * 7 + 6) * 7 + token;  // of head 1, query 6
    EXPECT_NEAR(key.real("weight"), static_cast<double>(weights[element]), 1e-6);
    EXPECT_NEAR(key.real("position"), static_cast<double>(positions[element]), 1e-5);
    EXPECT_EQ(key.string("symbol"), std::string(1, vocabulary[static_cast<std::size_t>(tokens[token])]));
    EXPECT_LE(key.real("weight"), before);
    before = key.real("weight");
  }
  expect_parts(done("inspect run --text w0i1r"), {"answer: ", ", then ", "| layer 1 head 0 | "});
}

TEST_F(InspectRun, RefusesWhatHasNoEffectOrDoesNotExist) {
  train("absolute");
  refused({{"inspect run --split ood-dense --start 3 --count 2", "has 4 sequences, asked for 2 from number 3 on"},
           {"inspect run --split ood-dense --start 4 --count 1", "asked for 4"},
           {"inspect run --text w0x", "symbol 3 is 'x'"},
           {"inspect run --gradients", "--gradients has no effect without --out; it is for .safetensors"},
           {"inspect run --gradients --out page.html", "--gradients has no effect with --out "},
           {"inspect run --mark=x --out out.safetensors", "it is for .html or .htm"},
           {"inspect run --top=3", "--top requires --text"},
           {"inspect run --queries=all --text=w0r", "excludes --queries"},
           {"inspect run --tokens t.npy --split train", "excludes"},
           {"inspect run --out x", "end in .html, .htm, .safetensors"}});
  refused("inspect run --text w0i1i1i1i1i1i1i1i1r", "the table has 16 positions", 1);
}

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
