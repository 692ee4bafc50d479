#include "tasks/evaluation/loss_blocks.hpp"

#include <cmath>
#include <numeric>

#include "core/error.hpp"

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

}  // namespace tally
