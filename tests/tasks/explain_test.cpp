// The summary of tally inspect on models whose weights are set by hand, so that every gate is exactly 1 or 0 and the
// results can be counted in the sequences.
#include "tasks/inspect/explain.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tasks/data/batch.hpp"
#include "tests/tasks/configured.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::testing::explain_test {

constexpr std::int64_t width = 8;
constexpr float large = 4000;  // a sigmoid of it, over sqrt(8), is exactly 1 or 0

// One layer, one head, on flip-flop of 16 symbols. After the norm, w has the embedding (1, -1, 1, -1, ..), and every
// other symbol is orthogonal to it. q is the first unit vector for all tokens, k is 0.
class ByHand : public ::testing::Test {
 protected:
  void make(const std::string& encoding, const std::string& options = "") {
    config_ =
        testing::configured("flip-flop", encoding,
                            "task.length=16 model.width=8 model.heads=1 model.layers=1 task.dense-count=20 " + options);
    task_ = config_.make_task();
    model_ = config_.make_model(*task_);
    for (auto& [name, parameter] : model_->parameters()) parameters_[name] = parameter;
    std::vector<float> embedding;
    for (int symbol = 0; symbol < 5; ++symbol) {
      for (int n = 0; n < width; ++n) embedding.push_back((symbol == 0 ? n : n / 2) % 2 == 0 ? 1 : -1);
    }
    set("embedding.weight", embedding);
    set("blocks.0.attention.query.weight", {});
    set("blocks.0.attention.query.bias", {1});
    set("blocks.0.attention.key.weight", {});
    set("blocks.0.attention.key.bias", {});
  }

  // Sets the first values of a parameter and zeros the rest.
  void set(const std::string& name, std::vector<float> values) {
    ASSERT_TRUE(parameters_.contains(name)) << name;
    Tensor& parameter = parameters_.at(name);
    values.resize(static_cast<std::size_t>(parameter.numel()), 0.0F);
    parameter.copy_from(Tensor::from(values, parameter.shape()));
  }
  // Sets rows that give `large` for w and -large for every other token.
  void tell_writes_apart(const std::string& weight, const std::string& bias, float sign = 1) {
    std::vector<float> row;
    for (int n = 0; n < width; ++n) row.push_back(sign * (n % 2 == 0 ? 2 : -2) * large / width);
    set(weight, row);
    set(bias, {-sign * large});
  }

  Explanation explain_dense() {
    examples_ = examples_of(*task_, "ood-dense", 0, 20);
    Explanation told = explain(*model_, *task_, examples_, 3);
    EXPECT_EQ(told.heads.size(), 1u);
    EXPECT_EQ(told.roles.size(), 6u);
    return told;
  }
  static std::size_t role(const Explanation& told, const std::string& name) {
    const auto found = std::find(told.roles.begin(), told.roles.end(), name);
    EXPECT_NE(found, told.roles.end()) << name;
    return static_cast<std::size_t>(found - told.roles.begin());
  }

  // Expects gates of 1 on w and 0 elsewhere, over all pairs of the sequences.
  void expect_open_on_writes(const Explanation& told, std::string_view kind, std::size_t first_key, bool with_own) {
    ASSERT_EQ(told.heads[0].gates.size(), 1u);
    const HeadGates& gates = told.heads[0].gates[0];
    EXPECT_EQ(gates.kind.name, kind);
    std::map<std::string, std::int64_t> scored, all;
    for (const Example& example : examples_) {
      const std::vector<std::string> roles = task_->roles(example);
      for (std::size_t i = 0; i < roles.size(); ++i) {
        for (std::size_t j = first_key; j < i + (with_own ? 1 : 0); ++j) {
          ++all[roles[j]];
          scored[roles[j]] += example.score_mask[i];
        }
      }
    }
    for (std::size_t role = 0; role < told.roles.size(); ++role) {
      const std::string& name = told.roles[role];
      for (const MeanDeviation& mean : {gates.values.scored[role], gates.values.all[role]}) {
        EXPECT_EQ(mean.mean, name == "w" ? 1 : 0) << name;
        EXPECT_EQ(mean.deviation, 0) << name;
      }
      EXPECT_EQ(gates.values.scored[role].n, scored[name]) << name;
      EXPECT_EQ(gates.values.all[role].n, all[name]) << name;
    }
    EXPECT_EQ(gates.open_on, std::vector<std::size_t>{role(told, "w")});
  }

  RunConfig config_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<SequenceModel> model_;
  std::map<std::string, Tensor> parameters_;
  std::vector<Example> examples_;
};

using Explain = ByHand;

TEST_F(Explain, GatesThatCountWrites) {
  make("cope", "pe.cope.gates=sep-keys");
  tell_writes_apart("blocks.0.position.cope.gate.weight", "blocks.0.position.cope.gate.bias");
  const Explanation told = explain_dense();
  expect_open_on_writes(told, "gates", 0, true);
  // There is no write between the latest write's bit and a read, so its position is 0 at any distance.
  const HeadExplanation& head = told.heads[0];
  EXPECT_EQ(head.source_position.n, told.evaluation.scored);
  EXPECT_EQ(head.source_position.mean, 0);
  EXPECT_EQ(head.source_position.deviation, 0);
  // All logits are 0, so a query at index i gives 1/(i+1) to each key.
  RunningMean to_source, to_writes;
  for (const Example& example : examples_) {
    double writes = 0;
    for (std::size_t i = 0; i < example.tokens.size(); ++i) {
      writes += example.tokens[i] == 0;
      if (example.score_mask[i] == 0) continue;
      to_source.add(1.0 / static_cast<double>(i + 1));
      to_writes.add(writes / static_cast<double>(i + 1));
    }
  }
  EXPECT_NEAR(head.source_attention.mean, to_source.result().mean, 1e-7);
  EXPECT_NEAR(head.attention.scored[role(told, "w")].mean, to_writes.result().mean, 1e-7);
  EXPECT_NEAR(head.attention.scored[role(told, "w")].deviation, to_writes.result().deviation, 1e-7);
  EXPECT_EQ(head.attention.all[role(told, "w")].n, 20 * 16);
}

TEST_F(Explain, ForgetGatesThatForgetAtWrites) {
  make("fox");
  tell_writes_apart("blocks.0.position.fox.forget.weight", "blocks.0.position.fox.forget.bias", -1);
  const Explanation told = explain_dense();
  expect_open_on_writes(told, "forgets", 1, true);  // the first token has no predecessor to forget
  // The remaining weight is spread over the tokens from the latest write on.
  for (const bool all : {false, true}) {
    RunningMean expected;
    for (const Example& example : examples_) {
      std::size_t latest = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        if (example.tokens[i] == 0) latest = i;
        if (all || example.score_mask[i] != 0) expected.add(1.0 / static_cast<double>(i - latest + 1));
      }
    }
    const MeansByRole& attention = told.heads[0].attention;
    const MeanDeviation to_writes = (all ? attention.all : attention.scored)[role(told, "w")];
    EXPECT_NEAR(to_writes.mean, expected.result().mean, 1e-6);
    EXPECT_EQ(to_writes.n, expected.result().n);
  }
}

TEST_F(Explain, BreaksAtWrites) {
  make("stick-breaking");
  tell_writes_apart("blocks.0.attention.key.weight", "blocks.0.attention.key.bias");
  const Explanation told = explain_dense();
  expect_open_on_writes(told, "breaks", 0, false);  // a query has no break for its own key
  const MeanDeviation to_writes = told.heads[0].attention.scored[role(told, "w")];
  EXPECT_EQ(to_writes.mean, 1);  // all of the stick, at every read
  EXPECT_EQ(to_writes.n, told.evaluation.scored);
  EXPECT_EQ(told.heads[0].source_position.n, 0);
}

TEST(OpenRoles, AreThoseApartFromAllOthers) {
  const auto open = [](const std::vector<double>& means) {
    std::vector<MeanDeviation> by_role;
    for (const double mean : means) by_role.push_back({mean, 0, mean < 0 ? 0 : 10});
    return open_roles(by_role);
  };
  using Roles = std::vector<std::size_t>;
  EXPECT_EQ(open({0.0, 1.0, 0.95, 0.1}), (Roles{1, 2}));
  EXPECT_EQ(open({0.0, 1.0, 0.89, 0.1}), Roles{});  // neither open nor closed
  EXPECT_EQ(open({0.0, 1.0, 0.11}), Roles{});
  EXPECT_EQ(open({0.2, 0.02, -1}), (Roles{0}));  // relative to the largest; roles without tokens do not count
  EXPECT_EQ(open({0.09, 0.0}), Roles{});         // hardly open at all
  EXPECT_EQ(open({0.9, 1.0}), Roles{});          // open on everything
  EXPECT_EQ(open({}), Roles{});
}

// If a task names the source token of an answer, that token holds the answer: its symbol, or its colour.
TEST(Roles, SourcesHoldTheAnswer) {
  for (const char* name : {"flip-flop", "selective-copy", "last-x"}) {
    const auto task = make_task(name);
    for (const Split& split : task->splits()) {
      for (std::int64_t index = 0; index < 3; ++index) {
        const Example example = task->example(split.name, index);
        const std::vector<std::int32_t> sources = task->sources(example);
        ASSERT_EQ(sources.size(), example.tokens.size());
        ASSERT_EQ(task->roles(example).size(), example.tokens.size());
        for (std::size_t t = 0; t < sources.size(); ++t) {
          ASSERT_EQ(sources[t] >= 0, example.score_mask[t] != 0) << name << " " << t;
          if (sources[t] < 0) continue;
          ASSERT_LE(sources[t], static_cast<std::int32_t>(t));
          EXPECT_EQ(example.tokens[static_cast<std::size_t>(sources[t])], example.targets[t]) << name << " " << t;
        }
      }
    }
  }
}

}  // namespace tally::testing::explain_test
