#include "tasks/evaluation/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>

#include "autograd/finite.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/profile.hpp"
#include "core/device/graph.hpp"
#include "core/device/staging_buffer.hpp"
#include "core/distributed/process_group.hpp"
#include "core/error.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/evaluation/error_rates.hpp"

namespace tally {
namespace {

constexpr std::size_t fewest_documents = 20, most_parts = 1000;
constexpr std::int64_t stretch_tokens = 10'000;

void begin_part(LossBlocks& blocks) {
  blocks.nats.push_back(0);
  blocks.tokens.push_back(0);
}
void add_token(LossBlocks& blocks, double nats) {
  blocks.nats.back() += nats;
  ++blocks.tokens.back();
}

LossBlocks joined_in_pairs(const LossBlocks& blocks) {
  LossBlocks pairs;
  for (std::size_t n = 0; n < blocks.nats.size(); ++n) {
    if (n % 2 == 0) begin_part(pairs);
    pairs.nats.back() += blocks.nats[n];
    pairs.tokens.back() += blocks.tokens[n];
  }
  return pairs;
}

std::int64_t total(const std::vector<std::int64_t>& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
}

}  // namespace

double LossBlocks::mean() const {
  const std::int64_t count = total(tokens);
  return count == 0 ? 0 : std::accumulate(nats.begin(), nats.end(), 0.0) / static_cast<double>(count);
}

std::optional<double> standard_error(const LossBlocks& blocks) {
  const auto parts = static_cast<double>(blocks.nats.size());
  if (blocks.nats.size() < 2) return std::nullopt;
  const double mean = blocks.mean();
  double squares = 0;
  for (std::size_t n = 0; n < blocks.nats.size(); ++n) {
    const double rest = blocks.nats[n] - mean * static_cast<double>(blocks.tokens[n]);
    squares += rest * rest;
  }
  return std::sqrt(squares * parts / (parts - 1)) / static_cast<double>(total(blocks.tokens));
}

LossDifference paired_difference(const LossBlocks& a, const LossBlocks& b) {
  check(a.tokens == b.tokens, "paired", "the two were not evaluated on the same tokens: {} in {} parts and {} in {}",
        total(a.tokens), a.tokens.size(), total(b.tokens), b.tokens.size());
  check(a.tokens.size() >= 2, "paired", "the text has {} part; at least two are needed", a.tokens.size());
  LossBlocks difference = a;
  for (std::size_t n = 0; n < a.nats.size(); ++n) difference.nats[n] -= b.nats[n];
  return {difference.mean(), *standard_error(difference)};
}

void LossBlockCounter::add(std::int32_t target, double nats) {
  if (ended_) begin_part(documents_);
  ended_ = target == end_of_text_;
  add_token(documents_, nats);
  if (stretches_.tokens.empty() || stretches_.tokens.back() == stretch_tokens) begin_part(stretches_);
  add_token(stretches_, nats);
}

LossBlocks LossBlockCounter::blocks() const {
  const std::size_t documents = documents_.nats.size();
  LossBlocks blocks = documents >= fewest_documents || documents >= stretches_.nats.size() ? documents_ : stretches_;
  while (blocks.nats.size() > most_parts) blocks = joined_in_pairs(blocks);
  return blocks;
}

void ErrorCounts::add_sequence(std::int64_t scored_tokens, std::int64_t wrong_tokens) {
  if (scored_tokens == 0) return;
  scored += scored_tokens;
  wrong += wrong_tokens;
  ++sequences;
  wrong_sequences += wrong_tokens > 0;
}

namespace {

double mean_over_keys(const Evaluation& evaluation, double (ErrorCounts::*error)() const) {
  double sum = 0;
  for (const auto& [key, counts] : evaluation.by) sum += (counts.*error)();
  return evaluation.by.empty() ? 0 : sum / static_cast<double>(evaluation.by.size());
}

}  // namespace

double Evaluation::mean_token_error() const { return mean_over_keys(*this, &ErrorCounts::token_error); }
double Evaluation::mean_sequence_error() const { return mean_over_keys(*this, &ErrorCounts::sequence_error); }

double Evaluation::perplexity() const { return std::exp(loss); }
double Evaluation::bits_per_byte() const {
  return loss * static_cast<double>(text->tokens) / static_cast<double>(text->bytes) / std::numbers::ln2;
}
double Evaluation::nats_per_word() const {
  return loss * static_cast<double>(text->tokens) / static_cast<double>(text->words);
}
double Evaluation::word_perplexity() const { return std::exp(nats_per_word()); }

Evaluation evaluation_of(const Task& task, std::string_view split) {
  Evaluation evaluation;
  evaluation.split = std::string(split);
  evaluation.breakdown = std::string(task.breakdown());
  return evaluation;
}

void add_sequence(Evaluation& evaluation, const std::vector<ScoredToken>& tokens) {
  const auto wrong = std::ranges::count(tokens, true, &ScoredToken::wrong);
  evaluation.add_sequence(static_cast<std::int64_t>(tokens.size()), wrong);
  if (evaluation.breakdown.empty()) return;
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> by;  // scored and wrong
  for (const ScoredToken& token : tokens) {
    auto& [scored_here, wrong_here] = by[token.key];
    ++scored_here;
    wrong_here += token.wrong;
  }
  for (const auto& [key, counts] : by) evaluation.by[key].add_sequence(counts.first, counts.second);
}

void add_scores(Evaluation& evaluation, const Tensor& best, const Batch& batch) {
  if (batch.targets.device().type == DeviceType::meta) return;  // no values to read
  const Tensor on_host = best.to(Device{});
  const auto predicted = on_host.span<std::int64_t>();
  const auto targets = batch.targets.span<std::int32_t>();
  const auto mask = batch.score_mask.span<bool>();
  const auto length = static_cast<std::size_t>(batch.targets.size(1));
  std::vector<ScoredToken> scored;
  for (std::size_t row = 0; row < targets.size(); row += length) {
    scored.clear();
    for (std::size_t t = row; t < row + length; ++t) {
      if (mask[t]) scored.push_back({predicted[t] != targets[t], batch.keys.empty() ? 0 : batch.keys[t]});
    }
    add_sequence(evaluation, scored);
  }
}

namespace {

// Positions of a batch that count in the loss: all positions if the batch has no values.
std::int64_t counted(const Batch& batch) {
  if (batch.loss_mask.device().type == DeviceType::meta) return batch.loss_mask.numel();
  const auto mask = batch.loss_mask.span<bool>();
  return std::count(mask.begin(), mask.end(), true);
}

Tensor loss_of(const Tensor& logits, const Batch& batch) {
  return cross_entropy(logits, batch.targets.to(logits.device()), batch.loss_mask.to(logits.device()));
}

// A model's results for a batch, on the host.
struct Found {
  Tensor best;               // i64 [B, T]: the index of the largest logit
  std::vector<double> nats;  // [B T], valid only for tokens that count; empty if the batch has no values
};

// The model's results for batches, one after the other. Batches of one shape are captured where the device has graphs.
class EvaluationPass {
 public:
  explicit EvaluationPass(SequenceModel& model)
      : model_(model), weight_(Tensor::scalar(1, model.head().dtype(), model.device())) {}

  Found operator()(const Batch& batch) {
    const NoGrad no_grad;
    if (counted(batch) > 0) counted_targets(batch.targets, batch.loss_mask, model_.vocabulary());  // in range
    const SequenceParts sequences(batch);
    take(sequences);
    in_.send();
    if (finite_checks() || profiling()) {
      work_.forget();
      compute();
    } else {
      work_(model_.device(), [this] { compute(); });
    }
    if (batch.targets.device().type == DeviceType::meta) return {};
    out_.fetch();
    return {sequences.put_back(out_.on_host(best)),
            sequences.put_back(out_.on_host(nats).to(DType::f64)).to_vector<double>()};
  }

 private:
  enum Input : std::size_t { tokens, targets, loss_mask, positions };
  enum Output : std::size_t { best, nats };

  // Captured work reads the tensors with which it was captured, part by part.
  void take(const SequenceParts& sequences) {
    const bool with_positions = sequences.separate() && reads_positions(model_);
    if (sequences.parts() != parts_ || sequences.separate() != (positions_end_ > 0)) {
      work_.forget();
      parts_ = sequences.parts();
      positions_end_ = sequences.separate() ? sequences.positions_end() : 0;
      const Shape shape{sequences.size()};
      in_ = StagingBuffer({{shape, DType::i32}, {shape, DType::i32}, {shape, DType::boolean}, {shape, DType::i32}},
                          model_.device());
      out_ = StagingBuffer({{shape, DType::i64}, {shape, weight_.dtype()}}, model_.device());
    }
    in_.on_host(tokens).copy_from(sequences.tokens);
    in_.on_host(targets).copy_from(sequences.targets);
    in_.on_host(loss_mask).copy_from(sequences.loss_mask);
    if (with_positions) in_.on_host(positions).copy_from(sequences.positions());
  }

  void compute() {
    for (const SequencePart& now : parts_) {
      const auto part = [&](const Tensor& all) {
        return all.detached_slice(0, now.first, now.end()).detached_reshape({now.rows, now.length});
      };
      ForwardContext pass;
      pass.positions.end = positions_end_;
      if (positions_end_ > 0 && reads_positions(model_)) pass.positions.each = part(in_.on_device(positions));
      const auto& random = model_.evaluation_positions;
      if (random && positions_end_ == 0 && model_.device().type != DeviceType::meta) {
        // The same for every batch, so that captured work may keep them.
        pass.positions.drawn =
            random->draw(now.length, {.stream = stream_of("evaluation positions")}).to(model_.device());
        pass.positions.end = random->range;
      }
      const TokenLoss found = model_.loss(part(in_.on_device(tokens)), part(in_.on_device(targets)),
                                          part(in_.on_device(loss_mask)), weight_, pass);
      part(out_.on_device(best)).copy_from(found.best);
      part(out_.on_device(nats)).copy_from(found.rows);
    }
  }

  SequenceModel& model_;
  Tensor weight_;
  std::vector<SequencePart> parts_;
  std::int64_t positions_end_ = 0;
  StagingBuffer in_, out_;
  GraphedStep work_;
};

void add_losses(const Found& found, const Batch& batch, Evaluation& evaluation, LossBlockCounter* parts) {
  const std::int64_t count = counted(batch);
  add_scores(evaluation, found.best, batch);
  if (count == 0 || batch.targets.device().type == DeviceType::meta) return;
  const auto targets = batch.targets.span<std::int32_t>();
  const auto mask = batch.loss_mask.span<bool>();
  for (std::size_t t = 0; t < found.nats.size(); ++t) {
    if (!mask[t]) continue;
    evaluation.loss_sum += found.nats[t];
    if (parts != nullptr) parts->add(targets[t], found.nats[t]);
  }
  evaluation.loss_count += count;
  evaluation.loss = evaluation.loss_sum / static_cast<double>(evaluation.loss_count);
}

// Sends the results of this rank's batch to all ranks. Each rank has a batch; ranks from `batches.size()` on have none.
void share_found(const ProcessGroup& ranks, const std::vector<Batch>& batches, std::vector<Found>& found) {
  std::vector<std::size_t> sizes;
  for (const Batch& batch : batches) sizes.push_back(static_cast<std::size_t>(batch.targets.numel()));
  std::span<const std::int64_t> own_best;
  std::span<const double> own_nats;
  if (const auto own = static_cast<std::size_t>(ranks.rank()); own < batches.size()) {
    own_best = found[own].best.span<std::int64_t>();
    own_nats = found[own].nats;
  }
  const auto best = gathered(ranks, sizes, own_best);
  auto nats = gathered(ranks, sizes, own_nats);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    found[i] = {Tensor::from(best[i], batches[i].targets.shape()), std::move(nats[i])};
  }
}

}  // namespace

void evaluate_batch(SequenceModel& model, const Batch& batch, Evaluation& evaluation, LossBlockCounter* parts) {
  add_losses(EvaluationPass(model)(batch), batch, evaluation, parts);
}

bool evaluate_batches(SequenceModel& model, const std::function<std::optional<Batch>()>& next, Evaluation& evaluation,
                      LossBlockCounter* parts, const std::atomic<bool>* stop) {
  const ProcessGroup& ranks = ProcessGroup::world();
  EvaluationPass pass(model);
  while (true) {
    if (ranks.any(stop != nullptr && stop->load())) return false;
    std::vector<Batch> batches;  // one for each rank
    while (static_cast<std::int64_t>(batches.size()) < ranks.size()) {
      std::optional<Batch> batch = next();
      if (!batch) break;
      batches.push_back(std::move(*batch));
    }
    if (batches.empty()) return true;
    std::vector<Found> found(batches.size());
    if (const auto own = static_cast<std::size_t>(ranks.rank()); own < batches.size()) {
      found[own] = pass(batches[own]);
    }
    if (!ranks.alone()) share_found(ranks, batches, found);
    for (std::size_t i = 0; i < batches.size(); ++i) add_losses(found[i], batches[i], evaluation, parts);
  }
}

TracedPass trace_pass(SequenceModel& model, const Batch& batch, bool with_gradients) {
  check(batch.starts.empty(), "inside",
        "a sequence holds several texts that do not see each other, of which there is no one picture; another sequence "
        "may lie within one text");
  model.clear_gradients();
  TracedPass pass;
  const auto forward = [&] {
    pass.logits = model.forward(batch.tokens);
    pass.loss = loss_of(pass.logits, batch);
  };
  if (with_gradients) {
    forward();
    backward(pass.loss);
  }
  const NoGrad no_grad;
  if (!with_gradients) forward();
  model.forward(batch.tokens, {.trace = &pass.layers});
  return pass;
}

std::int64_t sequences_of(const Task& task, std::string_view split, std::int64_t count) {
  const Split& info = task.split(split);
  if (count == 0) count = info.count;
  check(count > 0, "evaluate", "split '{}' is endless; say how many sequences", split);
  check(info.count == 0 || count <= info.count, "evaluate", "split '{}' has {} sequences, not {}", split, info.count,
        count);
  return count;
}

std::int64_t sequences_at_once(const Split& split) {
  constexpr std::int64_t tokens = 1024;
  return std::max<std::int64_t>(1, tokens / std::max<std::int64_t>(1, split.length));
}

Evaluation evaluate(SequenceModel& model, const Task& task, std::string_view split, std::int64_t count,
                    std::int64_t batch, const std::atomic<bool>* stop,
                    const std::function<void(std::int64_t done)>& progress) {
  count = sequences_of(task, split, count);
  Evaluation result = evaluation_of(task, split);
  std::optional<LossBlockCounter> parts;
  if (task.text_counts(split, 0)) {
    const std::vector<std::int32_t> between = task.beginning();
    parts.emplace(between.size() == 1 ? between.front() : LossBlockCounter::no_end);
  }
  std::int64_t begin = 0;
  const auto next = [&]() -> std::optional<Batch> {
    if (begin >= count) return std::nullopt;
    if (progress) progress(begin);
    const std::int64_t from = std::exchange(begin, std::min(begin + batch, count));
    return collate(examples_of(task, split, from, begin));
  };
  // If evaluation was stopped, the extent of the scored text is not known.
  if (!evaluate_batches(model, next, result, parts ? &*parts : nullptr, stop)) return result;
  result.text = task.text_counts(split, count);
  if (parts) result.blocks = parts->blocks();
  return result;
}

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

constexpr std::array<std::pair<const char*, std::int64_t ErrorCounts::*>, 4> count_names{
    {{"wrong", &ErrorCounts::wrong},
     {"scored", &ErrorCounts::scored},
     {"wrong_sequences", &ErrorCounts::wrong_sequences},
     {"sequences", &ErrorCounts::sequences}}};

JsonValue text_json(const Evaluation& e) {
  JsonValue text = text_counts_json(*e.text);
  text.set("perplexity", e.perplexity());
  if (e.text->bytes > 0) text.set("bits_per_byte", e.bits_per_byte());
  if (e.text->words > 0) text.set("word_perplexity", e.word_perplexity()).set("nats_per_word", e.nats_per_word());
  if (const std::optional<double> error = e.loss_error()) text.set("loss_error", *error);
  JsonValue nats = JsonValue::array(), tokens = JsonValue::array();
  for (std::size_t n = 0; n < e.blocks.nats.size(); ++n) {
    nats.push(e.blocks.nats[n]);
    tokens.push(e.blocks.tokens[n]);
  }
  return text.set("parts", JsonValue::object({{"nats", std::move(nats)}, {"tokens", std::move(tokens)}}));
}

void read_text(const JsonValue& text, Evaluation& e) {
  e.text = text_counts_from_json(text);
  const JsonValue& parts = text.at("parts");
  for (const JsonValue& nats : parts.elements("nats"))
    e.blocks.nats.push_back(nats.is_null() ? not_a_number : nats.real());
  e.blocks.tokens = parts.at("tokens").integers();
  check(e.blocks.nats.size() == e.blocks.tokens.size(), "evaluation", "'parts' has {} losses and {} counts of tokens",
        e.blocks.nats.size(), e.blocks.tokens.size());
}

}  // namespace

double real_or_nan(const JsonValue& object, std::string_view key) {
  return object.at(key).is_null() ? not_a_number : object.real(key);
}

JsonValue evaluation_json(std::int64_t step, const Evaluation& e) {
  const JsonMember measured = e.generated ? JsonMember{"generated", true} : JsonMember{"loss", e.loss};
  JsonValue json = JsonValue::object({{"step", step},
                                      {"split", e.split},
                                      measured,
                                      {"token_error", e.token_error()},
                                      {"sequence_error", e.sequence_error()}});
  for (const auto& [name, count] : count_names) json.set(name, e.*count);
  if (e.text) json.set("text", text_json(e));
  if (e.by.empty()) return json;
  JsonValue keys = JsonValue::array();
  for (const auto& [key, counts] : e.by) keys.push(key);
  JsonValue by = JsonValue::object({{"name", e.breakdown},
                                    {"mean_token_error", e.mean_token_error()},
                                    {"mean_sequence_error", e.mean_sequence_error()},
                                    {"keys", std::move(keys)}});
  for (const auto& [name, count] : count_names) {
    JsonValue column = JsonValue::array();
    for (const auto& [key, counts] : e.by) column.push(counts.*count);
    by.set(name, std::move(column));
  }
  return json.set("by", std::move(by));
}

namespace {

// Checks counts read from a file. `of`: "key 3" for the counts of a key.
void check_counts(const ErrorCounts& counts, const std::string& of) {
  check(0 <= counts.wrong && counts.wrong <= counts.scored, "evaluation", "{} wrong tokens of {}{}", counts.wrong,
        counts.scored, of);
  check(0 <= counts.wrong_sequences && counts.wrong_sequences <= counts.sequences, "evaluation",
        "{} wrong sequences of {}{}", counts.wrong_sequences, counts.sequences, of);
}

}  // namespace

Evaluation evaluation_from_json(const JsonValue& json) {
  Evaluation e;
  e.split = json.string("split");
  e.generated = json.contains("generated") && json.boolean("generated");
  if (!e.generated) e.loss = real_or_nan(json, "loss");
  for (const auto& [name, count] : count_names) e.*count = json.integer(name);
  check_counts(e, "");
  if (const JsonValue* text = json.find("text"); text != nullptr) read_text(*text, e);
  const JsonValue* by = json.find("by");
  if (by == nullptr) return e;
  e.breakdown = by->string("name");
  const std::vector<std::int64_t> keys = by->at("keys").integers();
  for (const auto& [name, count] : count_names) {
    const std::vector<std::int64_t> column = by->at(name).integers();
    check(column.size() == keys.size(), "evaluation", "'by' has {} keys and {} of {}", keys.size(), column.size(),
          name);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto key = static_cast<std::int32_t>(keys[i]);
      check(key == keys[i], "evaluation", "'by' has the key {}", keys[i]);
      e.by[key].*count = column[i];
    }
  }
  for (const auto& [key, counts] : e.by) check_counts(counts, formatted(" of the {} {}", e.breakdown, key));
  return e;
}

}  // namespace tally
